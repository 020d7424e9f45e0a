"""Server-sent events out of recorded bytes, after the fact: which read completed which event."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# Atomic groups: without them a lone CRLF would match as a CR followed by an LF, that is, as a blank line.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """An event's data, its name when it has one, and the index of the read that brought its last byte."""

    data: bytes
    read: int
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class Stream:
    """All events of one response body, and the bytes after the last blank line (an event cut short)."""

    events: tuple[Event, ...]
    tail: bytes


def parse_stream(body: bytes, read_ends: Sequence[int], first_read: int = 0) -> Stream:
    """Splits a body into events; read_ends[i] is the number of body bytes present after the i-th read.

    first_read: index of the first of these reads in the whole response, when only a part of it is given.
    """
    blocks, rest = _blocks(body)
    events = []
    for block, end in blocks:
        data, name = _fields(block)
        if data is not None:
            events.append(Event(data, first_read + bisect_left(read_ends, end), name))
    return Stream(tuple(events), body[rest:])


def _blocks(body: bytes) -> tuple[list[tuple[bytes, int]], int]:
    """Each event's lines with the offset just past their blank line, and where the unfinished rest begins."""
    at = len(_BOM) if body.startswith(_BOM) else 0
    blocks = []
    if b"\r" not in body:
        while (end := body.find(b"\n\n", at)) >= 0:
            blocks.append((body[at:end], end + 2))
            at = end + 2
        return blocks, at
    while match := _BLANK_LINE.search(body, at):
        blocks.append((body[at : match.start()], match.end()))
        at = match.end()
    return blocks, at


def _fields(block: bytes) -> tuple[bytes | None, bytes]:
    # Nearly every event is one data line; the general form below costs three times as much.
    if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
        return block[6:], b""
    data: list[bytes] = []
    name = b""
    for line in _LINE_END.split(block):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return (b"\n".join(data) if data else None), name
