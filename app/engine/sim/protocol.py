"""HTTP/1.1 server side on an asyncio transport: bounded requests in, bytes straight to the socket out."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qs

import httptools

MAX_BODY_BYTES = 16 << 20
MAX_HEAD_BYTES = 64 << 10
MAX_UNSENT_BYTES = 8 << 20
MAX_PIPELINED = 16


@dataclass(slots=True)
class Request:
    """One HTTP request, whole."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    received_ns: int
    keep_alive: bool


Handler = Callable[[Request, "Connection"], None]


@dataclass(slots=True)
class _Incoming:
    url: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    head_bytes: int = 0
    body: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """One client connection. The handler answers with `reply`, or with `begin_stream`, `send`..., `end`.

    `send` writes to the socket at once rather than at the end of the loop's round, so its stamp is when the bytes left.
    Set `on_lost` while a stream runs to hear of a client that went away.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._transport: asyncio.Transport
        self._parser: Any = None
        self._incoming = _Incoming()
        self._queue: deque[Request] = deque()
        self._busy = False
        self._keep_alive = True
        self._fd = -1
        self.chunked = True
        self.on_lost: Callable[[], None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepares the parser; the descriptor is written to directly."""
        self._transport = cast(asyncio.Transport, transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; what is not HTTP/1.1 (the router first tries HTTP/2) gets 400 and a closed connection."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(HTTPStatus.BAD_REQUEST, "no upgrade is offered")
        except httptools.HttpParserCallbackError as e:
            # The parser wraps what a handler raised: a fault of ours, to be seen as one.
            traceback.print_exception(e.__context__)
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"fault in the simulated engine: {e.__context__!r}")
        except httptools.HttpParserError:
            if not self._transport.is_closing():
                self.refuse(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the running stream, once."""
        self._queue.clear()
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()

    # httptools callbacks

    def on_message_begin(self) -> None:
        """A new request starts."""
        self._incoming = _Incoming()

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self._incoming.url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._incoming.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Refuses a body that is announced too long; asks for one that waits to be asked."""
        announced = self._incoming.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body over {MAX_BODY_BYTES} bytes")
        elif self._incoming.headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._incoming.body += body
        if len(self._incoming.body) > MAX_BODY_BYTES:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body over {MAX_BODY_BYTES} bytes")

    def on_message_complete(self) -> None:
        """Hands the request over, or keeps it until the one before is answered."""
        if self._transport.is_closing():
            return
        if len(self._queue) >= MAX_PIPELINED:
            self._transport.abort()
            return
        url = httptools.parse_url(self._incoming.url)
        self._queue.append(
            Request(
                method=self._parser.get_method().decode(),
                path=(url.path or b"/").decode("latin-1"),
                query=parse_qs((url.query or b"").decode("latin-1")),
                headers=self._incoming.headers,
                body=bytes(self._incoming.body),
                received_ns=time.monotonic_ns(),
                keep_alive=self._parser.should_keep_alive(),
            )
        )
        self._next()

    # answering

    def send(self, data: bytes) -> int:
        """Hands bytes to the kernel; returns CLOCK_MONOTONIC ns just before. Cuts off a client that stopped reading."""
        sent_ns = time.monotonic_ns()
        if self._transport.is_closing():
            return sent_ns
        written = 0
        if not self._transport.get_write_buffer_size():
            try:
                written = os.write(self._fd, data)
            except BlockingIOError:
                written = 0
            except OSError:
                self._transport.abort()
                return sent_ns
        if written < len(data):
            self._transport.write(data[written:])
            if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self._transport.abort()
        return sent_ns

    def send_chunk(self, payload: bytes) -> int:
        """Sends payload framed as the stream was begun; returns its stamp."""
        return self.send(frame(payload) if self.chunked else payload)

    def reply(
        self, status: int, body: bytes | str | dict[str, Any] | list[Any], content_type: str | None = None
    ) -> None:
        """Answers the request in one piece: a dict or list as JSON, else text."""
        if isinstance(body, dict | list):
            body, content_type = json.dumps(body).encode(), content_type or "application/json"
        elif isinstance(body, str):
            body, content_type = body.encode(), content_type or "text/plain; charset=utf-8"
        head = _head(status, content_type or "application/octet-stream", f"content-length: {len(body)}")
        self.send(head + body)
        self.finished()

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Answers an unacceptable request and closes."""
        self._keep_alive = False
        self.reply(
            status, {"object": "error", "message": message, "type": status.phrase, "param": None, "code": int(status)}
        )

    def begin_stream(self, content_type: str = "text/event-stream; charset=utf-8", chunked: bool = True) -> None:
        """Sends the head of a streamed answer; without chunks its end is the end of the connection."""
        self.chunked = chunked
        if not chunked:
            self._keep_alive = False
        self.send(_head(HTTPStatus.OK, content_type, "transfer-encoding: chunked" if chunked else "connection: close"))

    def end(self) -> None:
        """Ends a streamed answer properly."""
        if self.chunked:
            self.send(b"0\r\n\r\n")
        self.finished()

    def finished(self) -> None:
        """The answer is complete: close, or serve the next request of this connection."""
        self.on_lost = None
        self._busy = False
        if not self._keep_alive:
            self._transport.close()
        else:
            self._next()

    def close(self) -> None:
        """Closes in the middle of whatever is going on, after what was sent."""
        self._transport.close()

    def reset(self) -> None:
        """Breaks the connection with a reset, as a killed server does."""
        sock = socket.socket(fileno=os.dup(self._fd))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        self._transport.abort()

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport.is_closing()

    def _next(self) -> None:
        if self._busy or not self._queue or self._transport.is_closing():
            return
        self._busy = True
        request = self._queue.popleft()
        self._keep_alive = request.keep_alive
        self._handler(request, self)

    def _count_head(self, size: int) -> None:
        self._incoming.head_bytes += size
        if self._incoming.head_bytes > MAX_HEAD_BYTES and not self._transport.is_closing():
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers over {MAX_HEAD_BYTES} bytes")


def frame(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _head(status: int, content_type: str, *more: str) -> bytes:
    phrase = HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {int(status)} {phrase}", f"content-type: {content_type}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
