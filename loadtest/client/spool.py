"""Keeps what came off the wire in a file while a load runs: the driver's memory does not grow with the load."""

from __future__ import annotations

import json
import os
import struct
import tempfile
import weakref
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.errors import RecordsError

BUFFER_BYTES = 1 << 20
_HEAD = struct.Struct("<IIQ")


@dataclass(frozen=True, slots=True)
class Kept:
    """One entry: facts as plain data, and every read with its stamp."""

    facts: Mapping[str, Any]
    reads: Sequence[bytes]
    stamps: array[int]


class Spool:
    """Entries in an unnamed file of a folder, gone with the process. A fault of the disk is told on reading."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._offsets = array("Q")
        self._end = 0
        self._reading = False
        self._fault: OSError | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, facts: Mapping[str, Any], reads: Sequence[bytes], stamps: array[int]) -> None:
        """Adds an entry; never raises, since the load under way is not to be disturbed."""
        head = json.dumps(facts).encode()
        sizes = array("I", map(len, reads))
        lengths = _HEAD.pack(len(head), len(sizes), sum(sizes))
        entry = b"".join((lengths, head, stamps.tobytes(), sizes.tobytes(), *reads))
        self._offsets.append(self._end)
        self._end += len(entry)
        try:
            file = self._opened()
            if self._reading:
                file.seek(0, os.SEEK_END)
                self._reading = False
            file.write(entry)
        except OSError as e:
            self._fault = self._fault or e

    def read(self, index: int) -> Kept:
        """The entry that was added as number `index`; RecordsError when one could not be kept."""
        try:
            file, self._reading = self._opened(), True
            file.seek(self._offsets[index])
            head_bytes, count, body_bytes = _HEAD.unpack(file.read(_HEAD.size))
            facts = json.loads(file.read(head_bytes))
            stamps, sizes = array("q", file.read(8 * count)), array("I", file.read(4 * count))
            body = file.read(body_bytes)
        except OSError as e:
            self._fault = self._fault or e
        self.check()
        return Kept(facts, _cut(body, sizes), stamps)

    def check(self) -> None:
        """RecordsError when the disk failed."""
        if self._fault is not None:
            raise RecordsError(
                f"{self._folder}: what came off the wire could not be kept ({self._fault.strerror}); free some space"
            ) from self._fault

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = file = tempfile.TemporaryFile(dir=self._folder, buffering=BUFFER_BYTES)  # noqa: SIM115
            weakref.finalize(self, file.close)
        return self._file


def _cut(body: bytes, sizes: Sequence[int]) -> list[bytes]:
    reads, at = [], 0
    for size in sizes:
        reads.append(body[at : at + size])
        at += size
    return reads
