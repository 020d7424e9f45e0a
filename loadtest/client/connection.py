"""One connection of the load client: bytes out, bytes in with the instant they arrived, nothing parsed."""

from __future__ import annotations

import asyncio
import socket
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from gevent.event import Event
from gevent.monkey import get_original

from loadtest.client.arrival import ANCILLARY_BYTES, arrived_ns, ask_for_stamps
from loadtest.client.framing import EndWatch

# Some 400 bytes a token: half a million tokens. A server that never ends shall not fill the memory.
LIMIT_RESPONSE_BYTES = 256 * 1024 * 1024
# More than a token's event; a large buffer for each read would cost more than a second read now and then.
READ_BYTES = 4096
EPOLLIN = 1


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


class Poll:
    """Calls back for every socket that can be read: one wake-up of the loop for all of them, not one each.

    The loop's own watch of a socket would cost more, and uvloop's says nothing of one that was reset.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # gevent takes it out of its module.
        self._epoll = get_original("select", "epoll")()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._loop = loop
        loop.add_reader(self._epoll.fileno(), self._ready)

    def add(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls back while there is something to read, an end or an error among it."""
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Calls back no more; to be called before the socket is closed."""
        del self._callbacks[descriptor]
        self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Ends it; sockets that it still watched are no longer watched."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _ready(self) -> None:
        for descriptor, _ in self._epoll.poll(0):
            # One callback may have ended the connection of another that was ready too.
            if callback := self._callbacks.get(descriptor):
                callback()


@dataclass(frozen=True, slots=True)
class Owner:
    """What a connection works for: loop and poll that it lives in, and who is told of what, in the loop's thread.

    finish: an exchange has ended; drop: a connection cannot carry another.
    """

    loop: asyncio.AbstractEventLoop
    poll: Poll
    finish: Callable[[Exchange], None]
    drop: Callable[[Connection], None]


class Connection:
    """One kept-alive connection; carries one exchange at a time. All its methods are called in the loop's thread."""

    def __init__(self, channel: Any, owner: Owner) -> None:
        self._socket, self._owner = channel, owner
        self._watch = EndWatch()
        self._writing: asyncio.Task[None] | None = None
        self.closed = False
        self.exchange: Exchange | None = None
        owner.poll.add(channel.fileno(), self._read)

    def send(self, exchange: Exchange) -> None:
        """Sends the exchange's payload and takes what comes back as its response."""
        self.exchange, self._watch = exchange, EndWatch()
        self._acknowledge_at_once()
        exchange.sent_ns = time.monotonic_ns()
        try:
            sent = self._socket.send(exchange.payload)
        except BlockingIOError:
            sent = 0
        except OSError as e:
            self._lose(e)
            return
        if sent < len(exchange.payload):
            self._writing = self._owner.loop.create_task(self._send_rest(exchange.payload[sent:]))

    def abort(self, kind: str, error: str) -> None:
        """Ends the exchange under way as a fault, and the connection with it."""
        exchange, self.exchange = self.exchange, None
        self.close()
        if exchange is not None:
            exchange.fail(kind, error)
            exchange.ended_ns = time.monotonic_ns()
            self._owner.finish(exchange)

    async def _send_rest(self, payload: bytes) -> None:
        try:
            await self._owner.loop.sock_sendall(self._socket, payload)
        except OSError as e:
            self._lose(e)

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._lose(e)
            return
        if data:
            self._take(data, arrived_ns(ancillary))
        else:
            self._lose(None)

    def _take(self, data: bytes, arrived: int) -> None:
        self._acknowledge_at_once()
        exchange = self.exchange
        if exchange is None:
            return
        stamps = exchange.stamps
        # Never before what came earlier, whatever the wall clock did.
        earlier = stamps[-1] if stamps else exchange.sent_ns
        stamps.append(max(arrived, earlier))
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
            exchange.ended_ns = stamps[-1]
            self.exchange = None
            self._owner.finish(exchange)

    def _lose(self, error: OSError | None) -> None:
        self.close()
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.ended_ns = time.monotonic_ns()
        # A body without a length and without chunks ends, by the protocol, when the connection does.
        if not exchange.status or self._watch.framed:
            exchange.fail("disconnected", f"the connection ended inside the response ({error or 'closed by the peer'})")
        self._owner.finish(exchange)

    def close(self) -> None:
        """Ends the connection; of an exchange under way nothing is said."""
        if self.closed:
            return
        self.closed = True
        if self._writing is not None:
            self._writing.cancel()
        self._owner.poll.remove(self._socket.fileno())
        self._socket.close()
        self._owner.drop(self)

    def _acknowledge_at_once(self) -> None:
        # The router leaves Nagle's algorithm on: behind a delayed ACK it holds 40 ms of tokens back and glues them
        # together. The kernel falls back to delayed ACKs by itself, so this is said again at each read.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


async def connect(host: str, port: int, owner: Owner) -> Connection:
    """A connection to the first address of the host that answers; OSError when none does."""
    loop, failure = owner.loop, OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        # The plain class: a socket that gevent patched would wait in the main loop.
        channel = get_original("socket", "socket")(family, kind, protocol)
        try:
            channel.setblocking(False)
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(channel)
            await loop.sock_connect(channel, address)
        except OSError as e:
            failure = e
            channel.close()
        except BaseException:
            channel.close()
            raise
        else:
            return Connection(channel, owner)
    raise failure
