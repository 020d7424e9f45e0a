"""A file is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import RecordsError
from loadtest.whole import whole


def write(path: Path, data: bytes) -> None:
    with whole(path) as out:
        out.write(data)


@contextlib.contextmanager
def narrow() -> Iterator[None]:
    """No file may grow beyond 4096 bytes, for as short as can be: the log that the tests print to is a file too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_outgrows_its_disk_keeps_the_old_one_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")
    with pytest.raises(RecordsError, match=r"File too large; free some space$"), narrow():
        write(tmp_path / "a", bytes(10_000))
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    opened = whole(tmp_path / "a")
    opened.__enter__().write(b"half")
    assert opened.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None) is False
    assert list(tmp_path.iterdir()) == []


def test_the_file_and_then_its_folder_are_flushed_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "a", b"x")
    assert flushed == ["a.part", tmp_path.name]
