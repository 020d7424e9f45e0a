"""Extras of the environment, installed from their lock file when a task first needs them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from app.errors import NotReadyError

ROOT = Path(__file__).resolve().parent.parent
# torch's CPU and CUDA builds carry one version and different hashes, so its file pins the version alone.
UNHASHED = {"torch"}
# What each adds to base on disk, measured with Triton 3.9 and torch 2.13's CPU build.
SIZES = {
    "gate": "1.0 GB on disk from 0.3 GB of downloads",
    "test": "1.4 GB on disk, 1.0 GB of it the gate's",
    "torch": "0.8 GB on disk as the CPU build, several times that with CUDA",
    "docs": "70 MB on disk",
}


def ensure(*extras: str) -> None:
    """Installs each extra (a key of SIZES) into the running environment unless its stamp matches its lock file."""
    for extra in extras:
        if not is_installed(extra):
            lock = _lock(extra)
            _install(lock, SIZES[extra], hashed=extra not in UNHASHED)
            _stamp(extra).write_text(f"{_digest(lock)}\n")


def is_installed(extra: str) -> bool:
    """Whether the running environment was made from an extra's lock file (or base's) as it is now."""
    stamp = _stamp(extra)
    return stamp.is_file() and stamp.read_text().strip() == _digest(_lock(extra))


def _lock(extra: str) -> Path:
    return ROOT / "requirements" / f"{extra}.{'txt' if extra in UNHASHED else 'lock'}"


def _stamp(extra: str) -> Path:
    return Path(sys.prefix) / f"{extra}.sha256"


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def _install(lock: Path, size: str, hashed: bool) -> None:
    if sys.prefix == sys.base_prefix:
        raise NotReadyError(f"{lock.name} is not installed and no virtual environment is active; run ./lab instead")
    print(f"installing {lock.relative_to(ROOT)} (once; about {size}; one to a few minutes)", file=sys.stderr)
    options = ["--require-hashes"] if hashed else []
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *options, "-r", str(lock)]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        raise NotReadyError(f"could not install {lock.relative_to(ROOT)}; check the network or pip's index")
