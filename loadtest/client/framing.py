"""HTTP/1.1 framing of responses: noticing the end while reading, at almost no cost, and taking it off afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httptools

# The last chunk, and the line end of the chunk before it.
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_KEEP = len(_LAST_CHUNK)


@dataclass(frozen=True, slots=True)
class Body:
    """A response without its framing: body, its length after each read, status, and whether it is whole.

    framed: the response said how long it is; else it ends with the connection.
    """

    data: bytes
    ends: Sequence[int]
    status: int
    whole: bool
    framed: bool


class EndWatch:
    """Tells when the response being read has ended.

    A chunked 200 is watched by its last seven bytes only, which costs a tenth of a parser; `deframe` checks the whole
    later, so a stream whose text happens to look like its own end is found, not passed over. Anything else is parsed.
    """

    __slots__ = ("_parser", "_tail", "ended", "framed", "status")

    def __init__(self) -> None:
        self._parser: _Parser | None = None
        self._tail = b""
        self.ended = self.framed = False
        self.status = 0

    def feed(self, data: bytes) -> None:
        """Takes one read; httptools.HttpParserError when it is not HTTP."""
        if self._parser is not None:
            self._parse(data)
            return
        if not self.status:
            if not _is_plain_stream(data):
                self._parser = _Parser()
                self._parse(data)
                return
            self.status, self.framed = 200, True
        self._tail = data[-_KEEP:] if len(data) >= _KEEP else (self._tail + data)[-_KEEP:]
        self.ended = self._tail == _LAST_CHUNK

    def _parse(self, data: bytes) -> None:
        if self._parser is not None:
            self._parser.feed(data)
            self.status, self.ended, self.framed = self._parser.status, self._parser.whole, self._parser.framed


def deframe(reads: Sequence[bytes]) -> Body:
    """Takes the framing off recorded reads; what is not HTTP ends the body there."""
    parser = _Parser()
    ends = []
    for data in reads:
        if not parser.whole:
            try:
                parser.feed(data)
            except httptools.HttpParserError:
                parser.whole = False
        ends.append(len(parser.body))
    return Body(bytes(parser.body), ends, parser.status, parser.whole or not parser.framed, parser.framed)


class _Parser:
    """httptools' callbacks, gathered."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.status = 0
        self.whole = self.framed = False
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_header(self, name: bytes, value: bytes) -> None:
        self.framed = self.framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        self.whole = True


def _is_plain_stream(data: bytes) -> bool:
    head, separator, _ = data.partition(b"\r\n\r\n")
    head = head.lower()
    fields = b"\r\ntransfer-encoding: chunked" in head and b"\r\ntrailer:" not in head
    return bool(separator) and head.startswith(b"http/1.1 200") and fields and b"\r\nconnection: close" not in head
