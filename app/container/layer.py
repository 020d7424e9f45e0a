"""The kernel layer as a tree on disk whose bytes, times and modes depend on its content only."""

from __future__ import annotations

import os
from pathlib import Path

# 1980-01-01, the oldest time every archive format can hold.
EPOCH = 315532800


class LayerTree:
    """Files under `out` at the full paths they shall have in the image.

    Copied whole onto `/`: copying a single file would record its parent folders with the time of the build, and the
    same kernel would get another layer digest at each build.
    """

    def __init__(self, out: Path, root: Path = Path("/")) -> None:
        self._out, self._root = out, root

    def add(self, path: Path, data: bytes) -> Path:
        """Puts a file at an absolute image path and returns where it lies until then."""
        inside = self._out / path.relative_to("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_bytes(data)
        inside.chmod(0o644)
        return inside

    def seal(self) -> None:
        """Sets every time and mode, folders as the image has them; nothing may be added afterwards."""
        for path in sorted(self._out.rglob("*"), reverse=True):
            if path.is_dir():
                there = self._root / path.relative_to(self._out)
                path.chmod(there.stat().st_mode & 0o7777 if there.is_dir() else 0o755)
            os.utime(path, (EPOCH, EPOCH))
        os.utime(self._out, (EPOCH, EPOCH))
