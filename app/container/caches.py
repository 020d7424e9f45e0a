"""Kernel caches: one writable volume, a folder in it per kernel digest, seeded from the image's prebuilt entries."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.engine.sglang.caches import VARIABLES
from app.errors import NotReadyError, ProofError
from app.image.identity import BAKED, Identity

VOLUME = Path("/cache")


@dataclass(frozen=True, slots=True)
class Seeded:
    """How many cache files were copied, already there, or there with other content and replaced."""

    copied: int
    kept: int
    replaced: int


def cache_environment(identity: Identity, volume: Path = VOLUME) -> dict[str, str]:
    """The cache variables, all under the volume's folder for this kernel."""
    return {name: str(volume / identity.digest / folder) for name, folder in VARIABLES.items()}


def prepare_caches(identity: Identity, volume: Path = VOLUME, baked: Path = BAKED) -> Seeded:
    """Makes the folders and copies the prebuilt entries in; NotReadyError when the volume cannot be written."""
    try:
        for folder in cache_environment(identity, volume).values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        return _seed(identity.baked, baked, volume / identity.digest / VARIABLES["TRITON_CACHE_DIR"])
    except OSError as e:
        owner = f"{os.getuid()}:{os.getgid()}"
        raise NotReadyError(
            f"cache folder {volume} cannot be written ({e.strerror}); mount a volume there, or chown it to {owner}"
        ) from e


def _seed(files: Mapping[str, str], baked: Path, folder: Path) -> Seeded:
    counts = {"copied": 0, "kept": 0, "replaced": 0}
    # A group file names the others, so it goes last: a start that is cut short leaves an entry Triton will not see.
    for name in sorted(files, key=lambda n: (Path(n).name.startswith("__grp__"), n)):
        data = (baked / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != files[name]:
            raise ProofError(f"prebuilt cache file {baked / name} is changed; rebuild the image")
        counts[_place(folder / name, _relocated(folder / name, data))] += 1
    return Seeded(**counts)


def _place(path: Path, data: bytes) -> str:
    there = path.read_bytes() if path.is_file() else None
    if there == data:
        return "kept"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
    return "copied" if there is None else "replaced"


def _relocated(path: Path, data: bytes) -> bytes:
    # Triton's group files hold absolute paths of their members.
    if not path.name.startswith("__grp__"):
        return data
    try:
        group = dict(json.loads(data))
        group["child_paths"] = {name: str(path.parent / name) for name in dict(group["child_paths"])}
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise ProofError(f"prebuilt cache file {path.name} is no group of Triton's ({e}); rebuild the image") from e
    return json.dumps(group).encode()
