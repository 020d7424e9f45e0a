"""Files from outside that must be small: read whole, but only when they are regular and within a size."""

from __future__ import annotations

import stat
from pathlib import Path


class UnreadableError(ValueError):
    """Why a file is not read, as a phrase that follows its name; callers raise their own kind of LabError."""


def read_small(path: Path, limit_bytes: int) -> bytes:
    """The bytes of a regular file of at most `limit_bytes`."""
    try:
        # Looked at before it is opened: a pipe would block, a device may act.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableError("is no regular file")
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > limit_bytes:
        raise UnreadableError(f"is larger than {limit_bytes // 1024} KiB")
    return data


def read_small_text(path: Path, limit_bytes: int) -> str:
    """The text of a small UTF-8 file."""
    data = read_small(path, limit_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableError(f"is not UTF-8 in line {line}") from error
