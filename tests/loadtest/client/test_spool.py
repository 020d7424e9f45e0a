"""What is put aside during a load comes back as it was, and a full disk is told when it is read."""

from __future__ import annotations

import tracemalloc
from array import array
from pathlib import Path

import pytest

from app.errors import RecordsError
from loadtest.client.spool import Spool

READS = [b"HTTP/1.1 200 OK\r\n", b"", b"data: x\n\n" * 3]
STAMPS = array("q", [1, 2, 2**62])


def test_entries_come_back_in_any_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.append({"number": number}, READS[number:], STAMPS[number:])
    for number in (2, 0, 1):
        kept = spool.read(number)
        assert (kept.facts, kept.reads, kept.stamps) == ({"number": number}, READS[number:], STAMPS[number:])


def test_an_entry_added_while_others_are_read_spoils_none(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append({}, READS, STAMPS)
    spool.append({}, READS, STAMPS)
    spool.read(0)
    spool.append({"late": True}, READS, STAMPS)
    assert [spool.read(n).facts for n in range(3)] == [{}, {}, {"late": True}]


def test_the_file_has_no_name(tmp_path: Path) -> None:
    Spool(tmp_path).append({}, READS, STAMPS)
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_what_is_kept(tmp_path: Path) -> None:
    spool, reads = Spool(tmp_path), [bytes(250)] * 128
    stamps = array("q", range(128))
    spool.append({}, reads, stamps)
    tracemalloc.start()
    for _ in range(500):
        spool.append({}, reads, stamps)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 500 * 32


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_fills_up_is_told_when_the_rows_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
        spool = Spool(tmp_path)
        spool.append({}, READS, STAMPS)
    with pytest.raises(RecordsError, match="No space left on device"):
        spool.check()
