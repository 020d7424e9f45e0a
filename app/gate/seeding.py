"""Puts prebuilt entries into a cache folder of Triton's, so that it finds them where it looks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.errors import ProofError


@dataclass(frozen=True, slots=True)
class Seeded:
    """How many cache files were copied, already there, or there with other content and replaced."""

    copied: int
    kept: int
    replaced: int


def seed(names: Iterable[str], read: Callable[[str], bytes], folder: Path) -> Seeded:
    """Puts each named file under `folder`; read gives a file's bytes, or raises where they are not what they were."""
    counts = {"copied": 0, "kept": 0, "replaced": 0}
    # A group file names the others, so it goes last: a start that is cut short leaves an entry Triton will not see.
    for name in sorted(names, key=lambda n: (Path(n).name.startswith("__grp__"), n)):
        counts[_place(folder / name, relocated(folder / name, read(name)))] += 1
    return Seeded(**counts)


def relocated(path: Path, data: bytes) -> bytes:
    """A file's bytes for its place: Triton's group files hold absolute paths of their members."""
    if not path.name.startswith("__grp__"):
        return data
    try:
        group = dict(json.loads(data))
        group["child_paths"] = {name: str(path.parent / name) for name in dict(group["child_paths"])}
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise ProofError(f"prebuilt cache file {path.name} is no group of Triton's ({e}); make it anew") from e
    return json.dumps(group).encode()


def _place(path: Path, data: bytes) -> str:
    there = path.read_bytes() if path.is_file() else None
    if there == data:
        return "kept"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
    return "copied" if there is None else "replaced"
