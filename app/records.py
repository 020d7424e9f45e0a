"""Durable records: files appear whole or not at all, and one lab at a time owns a run folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from app.errors import RecordsError, UnwrittenError, UsageError
from loadtest.whole import whole


def write_text(path: Path, text: str) -> None:
    """Writes a file by write-and-rename, flushed to disk; UnwrittenError says what could not be written."""
    with whole(path) as out:
        out.write(text.encode())


def write_json(path: Path, data: Any) -> None:
    """Writes plain data as indented JSON; see `write_text`."""
    write_text(path, json.dumps(data, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> Any:
    """Reads JSON; RecordsError names a file that is missing or torn."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RecordsError(f"{path} could not be read: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        raise RecordsError(f"{path} is not JSON ({e}); it is not one of the lab's whole files") from e


def read_record(path: Path, newest: int) -> dict[str, Any]:
    """Reads a JSON object whose `schema` is at most the newest known (none counts as 1); RecordsError otherwise."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise RecordsError(f"{path} holds no JSON object; it is not one of the lab's files")
    schema = data.get("schema", 1)
    if not isinstance(schema, int) or not 1 <= schema <= newest:
        raise RecordsError(
            f"{path} has schema {schema!r}, this version reads 1 to {newest}; read it with its own version"
        )
    return data


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; UsageError when another lab holds it, UnwrittenError when nobody can."""
    with _opened(folder / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UsageError(f"{folder} is in use by another lab; wait for it or choose another --id") from e
        yield


def held(folder: Path) -> bool:
    """Whether a lab holds the folder now; False for one that is gone."""
    try:
        with (folder / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _opened(lock: Path) -> IO[bytes]:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        return lock.open("wb")
    except OSError as e:
        raise UnwrittenError(f"{lock} could not be opened: {e.strerror}; see that its folder can be written") from e
