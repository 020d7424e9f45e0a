"""Streams completions over plain HTTP: keeps bytes with the instant they arrived, and parses nothing.

The sockets live in a uvloop loop in an operating-system thread of its own, beside Locust's greenlets: a busy user or
web page delays a read by one switch of the interpreter lock, not by its own length, and a stamp not at all.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import gevent
import uvloop
from gevent.monkey import get_original

from app.errors import UsageError
from loadtest.client.connection import Connection, Exchange, Owner, Poll, connect
from loadtest.client.guards import LoopMeter

# How long another greenlet may hold the interpreter before the reader thread gets it back.
SWITCH_INTERVAL_S = 0.0005


class StreamClient:
    """Sends exchanges to one server from any greenlet.

    stall_s: a response without a byte for that long fails as "stalled".
    """

    def __init__(self, url: str, stall_s: float = 120.0) -> None:
        self.host, self.port = address(url)
        self._stall_ns = int(stall_s * 1e9)
        self._loop = uvloop.new_event_loop()
        self._idle: dict[int, Connection] = {}
        self._busy: set[Connection] = set()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._finished: deque[Exchange] = deque()
        self._watcher = gevent.get_hub().loop.async_()
        self._ended = get_original("_thread", "allocate_lock")()
        self._poll = Poll(self._loop)
        self._owner = Owner(self._loop, self._poll, self._finish, self._drop)
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

    def _finish(self, exchange: Exchange) -> None:
        self._finished.append(exchange)
        self._watcher.send()

    def _drop(self, connection: Connection) -> None:
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
        self._poll.close()
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
        if connection is None or connection.closed:
            self._spawn(self._connect_and_send(exchange))
        else:
            self._busy.add(connection)
            connection.send(exchange)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        connection = await self._connect(exchange.slot, lambda error: exchange.fail("connect", error))
        if connection is None:
            exchange.sent_ns = exchange.ended_ns = time.monotonic_ns()
            self._finish(exchange)
            return
        self._busy.add(connection)
        connection.send(exchange)

    async def _connect(self, slot: int, on_error: Callable[[str], None]) -> Connection | None:
        try:
            connection = await connect(self.host, self.port, self._owner)
        except OSError as e:
            on_error(f"{self.host}:{self.port}: {e}")
            return None
        if (other := self._idle.get(slot)) is not None:
            # One was opened ahead while the slot's first request brought its own.
            if other.exchange is not None:
                connection.close()
                return other
            other.close()
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
    host, port = address(url)
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode() + body


def address(url: str) -> tuple[str, int]:
    """Host and port of http://host:port; UsageError for any other form."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", 80 if parts.port is None else parts.port
        # As the resolver does, which would end in a traceback.
        host.encode("idna")
    except ValueError as e:
        raise UsageError(f"host {url[:80]!r} cannot be ({e}); the driver needs http://host:port") from e
    if parts.scheme != "http" or not host or not port:
        raise UsageError(f"host {url!r}; the driver needs http://host:port")
    return host, port
