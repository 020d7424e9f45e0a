"""Proof from inside a running container: what its main process was started with and what lies on its disk now."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.container.caches import VOLUME, cache_environment
from app.container.check import check_image
from app.errors import ProofError
from app.image.identity import Identity, read_identity
from app.kernel.selector import SELECTOR
from app.small_file import read_small

LIMIT_METADATA_BYTES = 1024 * 1024


def evidence(environ: Mapping[str, str], proc: Path = Path("/proc"), volume: Path = VOLUME) -> dict[str, Any]:
    """Identity, selector of the running server, hash of the kernel file as it lies there, and Triton's cache entries.

    Raises ProofError when image and identity disagree. The selector is read from the server's own environment: that of
    a process started beside it would prove nothing.
    """
    identity = read_identity()
    check_image(identity)
    started_with = _environment(_server(proc))
    kernel_file = Path(identity.kernel_file)
    return {
        "identity": identity.to_json(),
        "kernel_file": str(kernel_file),
        "kernel_sha256": hashlib.sha256(kernel_file.read_bytes()).hexdigest(),
        "selector": started_with.get(SELECTOR, identity.selector if identity.selector == "flashmla" else ""),
        "cache": cache_entries(identity, volume),
    }


def cache_entries(identity: Identity, volume: Path = VOLUME) -> list[dict[str, Any]]:
    """Triton's own metadata of each cached compile of the variant's kernel: what was launched, not what was meant."""
    folder = Path(cache_environment(identity, volume)["TRITON_CACHE_DIR"])
    found = []
    for path in sorted(folder.glob(f"*/{identity.kernel}.json")):
        data = _metadata(path)
        kept = {k: data[k] for k in ("num_warps", "num_stages", "shared", "hash") if k in data}
        found.append({"key": path.parent.name} | kept)
    return found


def _metadata(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(read_small(path, LIMIT_METADATA_BYTES))
    except (ValueError, RecursionError) as e:
        raise ProofError(f"{path} is no metadata of Triton's ({e}); empty the cache volume") from e
    if not isinstance(found, dict):
        raise ProofError(f"{path} is no metadata of Triton's; empty the cache volume")
    metadata: dict[str, Any] = found
    return metadata


def _server(proc: Path) -> Path:
    """The oldest process of this container but for Docker's own init; its number is not 1 in a shared namespace."""
    own = (proc / "self" / "ns" / "mnt").readlink()
    found = sorted((int(p.name), p) for p in proc.iterdir() if p.name.isdigit() and _mounts(p) == own)
    return next(p for _, p in found if (p / "comm").read_text().strip() != "docker-init")


def _mounts(process: Path) -> Path | None:
    try:
        return (process / "ns" / "mnt").readlink()
    except OSError:
        return None


def _environment(process: Path) -> dict[str, str]:
    pairs = (item.partition("=") for item in (process / "environ").read_text(errors="replace").split("\0") if item)
    return {key: value for key, _, value in pairs}
