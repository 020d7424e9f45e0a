"""Streams completions over plain HTTP: stamps bytes as they leave the socket, keeps them, and parses nothing.

The sockets live in a uvloop loop in an operating-system thread of its own, beside Locust's greenlets: a busy user or
web page delays a stamp by one switch of the interpreter lock, not by its own length.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import gevent
import httptools
import uvloop
from gevent.event import Event
from gevent.monkey import get_original

from app.errors import UsageError
from loadtest.client.framing import EndWatch
from loadtest.client.guards import LoopMeter

# How long another greenlet may hold the interpreter before the reader thread gets it back.
SWITCH_INTERVAL_S = 0.0005
# Some 400 bytes a token: half a million tokens. A server that never ends shall not fill the memory.
LIMIT_RESPONSE_BYTES = 256 * 1024 * 1024


class Exchange:
    """One request and the raw record of its response: every read as it came, and the stamp of each."""

    __slots__ = (
        "done",
        "ended_ns",
        "error",
        "error_kind",
        "payload",
        "reads",
        "sent_ns",
        "size",
        "slot",
        "stamps",
        "status",
    )

    def __init__(self, slot: int, payload: bytes) -> None:
        self.slot, self.payload = slot, payload
        # size: bytes received.
        self.sent_ns = self.ended_ns = self.status = self.size = 0
        self.reads: list[bytes] = []
        self.stamps = array("q")
        self.error_kind = self.error = ""
        self.done = Event()

    def fail(self, kind: str, error: str) -> None:
        """Marks the exchange; the first fault stands."""
        if not self.error_kind:
            self.error_kind, self.error = kind, error


class _Connection(asyncio.Protocol):
    """One kept-alive connection; carries one exchange at a time."""

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._watch = EndWatch()
        self._socket: Any = None
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        # A socket of the plain kind on the same descriptor: uvloop's own object takes 8 us for a socket option.
        descriptor = transport.get_extra_info("socket").fileno()
        self._socket = get_original("socket", "socket")(fileno=descriptor)

    def send(self, exchange: Exchange, transport: asyncio.Transport) -> None:
        self.exchange, self._watch = exchange, EndWatch()
        self._acknowledge_at_once()
        exchange.sent_ns = time.monotonic_ns()
        transport.write(exchange.payload)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._acknowledge_at_once()
        exchange = self.exchange
        if exchange is None:
            return
        exchange.stamps.append(now)
        exchange.reads.append(data)
        exchange.size += len(data)
        watch = self._watch
        try:
            watch.feed(data)
        except httptools.HttpParserError as e:
            self.abort("bad_http", f"not an HTTP response: {e}")
            return
        exchange.status = watch.status
        if exchange.size > LIMIT_RESPONSE_BYTES:
            self.abort("too_large", f"more than {LIMIT_RESPONSE_BYTES // 2**20} MiB in one response")
        elif watch.ended:
            exchange.ended_ns = now
            self.exchange = None
            self._client.finish(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket.detach()
        self._client.drop(self)
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.ended_ns = time.monotonic_ns()
        # A body without a length and without chunks ends, by the protocol, when the connection does.
        if not exchange.status or self._watch.framed:
            exchange.fail("disconnected", f"the connection ended inside the response ({exc or 'closed by the peer'})")
        self._client.finish(exchange)

    def _acknowledge_at_once(self) -> None:
        # The router leaves Nagle's algorithm on: behind a delayed ACK it holds 40 ms of tokens back and glues them
        # together. The kernel falls back to delayed ACKs by itself, so this is said again at each read.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def abort(self, kind: str, error: str) -> None:
        exchange, self.exchange = self.exchange, None
        if self.transport is not None:
            self.transport.abort()
        if exchange is not None:
            exchange.fail(kind, error)
            exchange.ended_ns = time.monotonic_ns()
            self._client.finish(exchange)


class StreamClient:
    """Sends exchanges to one server from any greenlet.

    stall_s: a response without a byte for that long fails as "stalled".
    """

    def __init__(self, url: str, stall_s: float = 120.0) -> None:
        self.host, self.port = _address(url)
        self._stall_ns = int(stall_s * 1e9)
        self._loop = uvloop.new_event_loop()
        self._idle: dict[int, _Connection] = {}
        self._busy: set[_Connection] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._finished: deque[Exchange] = deque()
        self._watcher = gevent.get_hub().loop.async_()
        self._ended = get_original("_thread", "allocate_lock")()
        self.meter = LoopMeter()

    def start(self) -> None:
        """Starts the reader thread."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._watcher.start(self._wake)
        self._ended.acquire()
        # The original call: a thread that gevent patched would be a greenlet of the main loop.
        get_original("_thread", "start_new_thread")(self._run, ())

    def begin(self, exchange: Exchange) -> None:
        """Sends one exchange on its slot's connection; `exchange.done` is set at its end, faults are marked in it."""
        self._loop.call_soon_threadsafe(self._begin, exchange)

    def open(self, slots: Iterable[int]) -> None:
        """Opens the connections of slots ahead of their first request."""
        self._loop.call_soon_threadsafe(self._open_all, slots)

    def cut(self) -> None:
        """Ends every exchange in flight; they fail as "cut"."""
        self._loop.call_soon_threadsafe(self._abort_all, "cut", "ended by the driver after its last window")

    def close(self) -> None:
        """Cuts what is in flight and waits for the reader thread to end."""
        self._loop.call_soon_threadsafe(self._abort_all, "cut", "the driver was closed")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._ended.acquire()
        self._wake()
        self._watcher.stop()

    def finish(self, exchange: Exchange) -> None:
        """Hands a finished exchange back to its greenlet (called in the reader thread)."""
        self._finished.append(exchange)
        self._watcher.send()

    def drop(self, connection: _Connection) -> None:
        """Forgets a connection that cannot carry another exchange (called in the reader thread)."""
        self._busy.discard(connection)
        for slot in [s for s, c in self._idle.items() if c is connection]:
            del self._idle[slot]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.meter.attach(self._loop)
        sweeps = self._loop.create_task(self._sweep())
        self._loop.run_forever()
        self.meter.detach()
        sweeps.cancel()
        for connection in list(self._idle.values()):
            connection.abort("cut", "the driver was closed")
        self._loop.run_until_complete(self._settle())
        self._loop.close()
        self._ended.release()

    async def _settle(self) -> None:
        # A loop is not closed while a handle is still on its way out.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0.02)

    def _wake(self) -> None:
        while self._finished:
            self._finished.popleft().done.set()

    def _begin(self, exchange: Exchange) -> None:
        connection = self._idle.get(exchange.slot)
        if connection is None or connection.transport is None or connection.transport.is_closing():
            self._spawn(self._connect_and_send(exchange))
        else:
            self._busy.add(connection)
            connection.send(exchange, connection.transport)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        connection = await self._connect(exchange.slot, lambda error: exchange.fail("connect", error))
        if connection is None or connection.transport is None:
            exchange.sent_ns = exchange.ended_ns = time.monotonic_ns()
            self.finish(exchange)
            return
        self._busy.add(connection)
        connection.send(exchange, connection.transport)

    async def _connect(self, slot: int, on_error: Callable[[str], None]) -> _Connection | None:
        try:
            _, connection = await self._loop.create_connection(lambda: _Connection(self), self.host, self.port)
        except OSError as e:
            on_error(f"{self.host}:{self.port}: {e}")
            return None
        self._idle[slot] = connection
        return connection

    def _open_all(self, slots: Iterable[int]) -> None:
        for slot in slots:
            if slot not in self._idle:
                self._spawn(self._connect(slot, lambda error: None))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        # The loop itself keeps only a weak reference to a task.
        task = self._loop.create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            limit = time.monotonic_ns() - self._stall_ns
            for connection in list(self._busy):
                exchange = connection.exchange
                if exchange is None:
                    self._busy.discard(connection)
                elif (exchange.stamps[-1] if exchange.stamps else exchange.sent_ns) < limit:
                    connection.abort("stalled", f"no byte for {self._stall_ns / 1e9:g} s")

    def _abort_all(self, kind: str, error: str) -> None:
        for connection in list(self._busy):
            connection.abort(kind, error)


def http_request(url: str, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of one POST: no compression, no proxy, connection kept."""
    host, port = _address(url)
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(f"host {url!r}; the driver needs http://host:port")
    return parts.hostname, parts.port or 80
