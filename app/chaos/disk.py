"""A file system of a few megabytes, to be filled to the last byte."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from app.errors import NotReadyError

SIZE = "6m"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mounts it at the folder and takes it away again; NotReadyError where mounting is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        raise NotReadyError(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
