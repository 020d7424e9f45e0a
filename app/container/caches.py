"""Kernel caches: one writable volume, a folder in it per kernel digest, seeded from the image's prebuilt entries."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from app.engine.sglang.caches import VARIABLES
from app.errors import NotReadyError, ProofError
from app.gate.seeding import Seeded, seed
from app.image.identity import BAKED, Identity

VOLUME = Path("/cache")


def cache_environment(identity: Identity, volume: Path = VOLUME) -> dict[str, str]:
    """The cache variables, all under the volume's folder for this kernel."""
    return {name: str(volume / identity.digest / folder) for name, folder in VARIABLES.items()}


def prepare_caches(identity: Identity, volume: Path = VOLUME, baked: Path = BAKED) -> Seeded:
    """Makes the folders and copies the prebuilt entries in; NotReadyError when the volume cannot be written."""
    try:
        for folder in cache_environment(identity, volume).values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        triton = volume / identity.digest / VARIABLES["TRITON_CACHE_DIR"]
        return seed(identity.baked, lambda name: _baked(baked / name, identity.baked[name]), triton)
    except OSError as e:
        owner = f"{os.getuid()}:{os.getgid()}"
        raise NotReadyError(
            f"cache folder {volume} cannot be written ({e.strerror}); mount a volume there, or chown it to {owner}"
        ) from e


def _baked(path: Path, sha256: str) -> bytes:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ProofError(f"prebuilt cache file {path} is changed; rebuild the image")
    return data
