"""What Triton's cache folder holds of a kernel: Triton's own metadata and the machine code beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.errors import ProofError


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One compile of a kernel. key: its folder's name; hash: Triton's own; registers and code: None without a cubin.

    new: written after the time that was asked about. target: architecture, such as 90 or 120.
    """

    key: str
    num_warps: int
    num_stages: int
    shared: int
    hash: str
    target: int | None
    registers: int | None
    code_sha256: str | None
    new: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data for proof.json."""
        return asdict(self)


def read_entries(folder: Path, kernel: str, since: float = 0.0) -> tuple[CacheEntry, ...]:
    """Every compile of `kernel` in a cache folder; since: Unix time after which an entry is new."""
    return tuple(_entries(folder, kernel, since))


def _entries(folder: Path, kernel: str, since: float) -> Iterator[CacheEntry]:
    from kernels.sass import code_sha256, registers

    for path in sorted(folder.glob(f"*/{kernel}.json")):
        data, cubin = _metadata(path), path.with_suffix(".cubin")
        code = cubin.read_bytes() if cubin.is_file() else None
        target = data.get("target")
        yield CacheEntry(
            key=path.parent.name,
            num_warps=int(data["num_warps"]),
            num_stages=int(data["num_stages"]),
            shared=int(data["shared"]),
            hash=str(data["hash"]),
            target=int(target["arch"]) if isinstance(target, dict) and str(target["arch"]).isdigit() else None,
            registers=None if code is None else registers(code),
            code_sha256=None if code is None else code_sha256(code),
            new=path.stat().st_mtime >= since,
        )


def _metadata(path: Path) -> dict[str, Any]:
    try:
        data = dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as e:
        raise ProofError(f"{path} is not Triton's metadata ({e}); empty the cache and start again") from e
    if missing := [k for k in ("num_warps", "num_stages", "shared", "hash") if k not in data]:
        raise ProofError(f"{path} lacks {', '.join(missing)}; it is of a Triton that the lab does not know")
    return data
