"""When bytes came in: the kernel's own stamp of the packet, so that a late reader does not make a late token."""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

SOL_SOCKET = 1
# Not in the socket module; the number of every 64-bit Linux but MIPS, PA-RISC, Sparc and Alpha.
SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
# Room for one such stamp: its header, and two longs.
ANCILLARY_BYTES = 64
# A reader is never later than that: a greater lag is a step of the wall clock between arrival and read.
MOST_LAG_NS = 1_000_000_000
MOST_APART_NS = 20_000
MOST_READINGS = 4


def ask_for_stamps(channel: Any) -> None:
    """Has the kernel stamp what this socket receives; where it cannot, bytes are stamped when they are read."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            channel.setsockopt(SOL_SOCKET, SO_TIMESTAMPNS, 1)


def arrived_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Monotonic nanoseconds at which what was just read came in; never too early, and late by microseconds.

    Of a read that holds several packets the kernel keeps the last one's stamp. Its clock is the wall's, so the stamp is
    taken as an age: a step of that clock can spoil only what lies unread just then, and not by more than a second.
    """
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS and level == SOL_SOCKET and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            wall, now = _both_clocks()
            age = wall - seconds * 1_000_000_000 - nanoseconds
            return now - age if 0 <= age <= MOST_LAG_NS else now
    return time.monotonic_ns()


def _both_clocks() -> tuple[int, int]:
    """Wall and monotonic clock at one instant, monotonic no earlier; read again where something came between."""
    for _ in range(MOST_READINGS):
        before, wall, now = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if now - before <= MOST_APART_NS:
            break
    return wall, now
