"""What checks look at: the asked engine and runtime, the settings, and the machine behind replaceable doors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.command import Runner
from app.settings import Deployment

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Host:
    """root: where /proc, /sys and /dev lie; cache: the lab's own; runs: where campaigns are written.

    disk returns total and free bytes of the file system that holds a path.
    """

    engine: str
    runtime: str
    settings: Deployment
    run: Runner
    cache: Path
    runs: Path = Path("runs")
    root: Path = Path("/")
    disk: Callable[[Path], tuple[int, int]] = lambda path: _disk(path)

    def read(self, path: str) -> str:
        """Text of a system file, stripped; empty when this machine has no such file."""
        try:
            return (self.root / path).read_text(encoding="utf-8").strip()
        except OSError:
            return ""


def nearest(path: Path) -> Path:
    """The path itself, or its closest parent that exists."""
    here = path.absolute()
    return next(p for p in (here, *here.parents) if p.exists())


def _disk(path: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(nearest(path))
    return usage.total, usage.free
