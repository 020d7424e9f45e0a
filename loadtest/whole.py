"""Files that appear under their name complete and on disk, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.errors import UnwrittenError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to be written: renamed to its name when flushed to disk, removed when anything goes wrong.

    UnwrittenError says what could not be written and why.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        _sync(path.parent)
    except BaseException as e:
        with contextlib.suppress(OSError):
            part.unlink()
        if not isinstance(e, OSError):
            raise
        mend = "free some space" if e.errno in NO_SPACE else "see that its folder can be written"
        raise UnwrittenError(f"{path} could not be written: {e.strerror or e}; {mend}") from e


def _sync(folder: Path) -> None:
    # A rename is on disk only when its folder is.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
