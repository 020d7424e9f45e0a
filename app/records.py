"""Durable records: files appear whole or not at all, and one lab at a time owns a run folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.errors import RecordsError, UsageError


def write_text(path: Path, text: str) -> None:
    """Writes a file by write-and-rename, flushed to disk; RecordsError says what could not be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
    except OSError as e:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise RecordsError(f"{path} could not be written: {e.strerror}; free some space, then resume") from e


def write_json(path: Path, data: Any) -> None:
    """Writes plain data as indented JSON; see `write_text`."""
    write_text(path, json.dumps(data, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:
    """Reads JSON; RecordsError names a file that is missing or torn."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RecordsError(f"{path} could not be read: {e.strerror}") from e
    except ValueError as e:
        raise RecordsError(f"{path} is not JSON ({e}); it is not one of the lab's whole files") from e


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; UsageError when another lab holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise UsageError(f"{folder} is in use by another lab; wait for it or choose another --id") from e
        yield
