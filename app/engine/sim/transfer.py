"""KV hand-over between the two roles: decode asks prefill's bootstrap port for a room, prefill answers when the KV is
there.

JSON lines over one connection per decode: {"room": R} asks, {"room": R, "cancel": true} takes it back; {"room": R,
"ok": true, "cached_tokens": N} or {"room": R, "ok": false, "reason": "..."} answers. `GET /health` is answered too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from app.engine.sim.generation import Bootstrap

MAX_LINE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Arrival:
    """What decode learns of a room: its KV is there, or why it will never be."""

    ok: bool
    cached_tokens: int = 0
    reason: str = ""


class Sender(Protocol):
    """The prefill side's ear."""

    def asked(self, peer: Peer, room: int) -> None:
        """A decode service has memory ready for the room."""
        ...

    def cancelled(self, peer: Peer, room: int) -> None:
        """It no longer wants it."""
        ...

    def lost(self, peer: Peer) -> None:
        """It is gone."""
        ...


class Lines(asyncio.Protocol):
    """JSON objects, one a line."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Splits lines; what is no JSON object ends the connection."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            for line in lines:
                self.received(json.loads(line))
        except (ValueError, KeyError, TypeError):
            self._transport.abort()
        if len(self._buffer) > MAX_LINE_BYTES:
            self._transport.abort()

    def write(self, **message: Any) -> None:
        """Sends one object."""
        if not self._transport.is_closing():
            self._transport.write(json.dumps(message).encode() + b"\n")

    def received(self, message: dict[str, Any]) -> None:
        """One object came."""
        raise NotImplementedError


class Peer(Lines):
    """A decode service, as prefill's bootstrap server sees it."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def data_received(self, data: bytes) -> None:
        """Answers health probes; the rest are lines."""
        if not self._buffer and data.startswith(b"GET "):
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nOK")
            self._transport.close()
        else:
            super().data_received(data)

    def received(self, message: dict[str, Any]) -> None:
        """A room is asked for or taken back."""
        room = int(message["room"])
        if message.get("cancel"):
            self._sender.cancelled(self, room)
        else:
            self._sender.asked(self, room)

    def connection_lost(self, exc: Exception | None) -> None:
        """The decode service is gone."""
        self._sender.lost(self)

    def delivered(self, room: int, cached_tokens: int) -> None:
        """The room's KV is with decode."""
        self.write(room=room, ok=True, cached_tokens=cached_tokens)

    def failed(self, room: int, reason: str) -> None:
        """The room's KV will not come."""
        self.write(room=room, ok=False, reason=reason)


class Receiver:
    """The decode side: one connection per bootstrap server, opened when first needed and again after a loss."""

    def __init__(self, default_port: int) -> None:
        self._default_port = default_port
        self._links: dict[tuple[str, int], _Link] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def fetch(self, bootstrap: Bootstrap, on_arrival: Callable[[Arrival], None]) -> None:
        """Asks for a room; on_arrival is called once unless the room is cancelled."""
        address = (bootstrap.host, bootstrap.port or self._default_port)
        link = self._links.get(address)
        if link is None or link.broken:
            link = self._links[address] = _Link(address)
            task = asyncio.get_running_loop().create_task(link.open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        link.ask(bootstrap.room, on_arrival)

    def cancel(self, bootstrap: Bootstrap) -> None:
        """Takes a room back."""
        link = self._links.get((bootstrap.host, bootstrap.port or self._default_port))
        if link is not None:
            link.cancel(bootstrap.room)


class _Link(Lines):
    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self._address = address
        self._rooms: dict[int, Callable[[Arrival], None]] = {}
        self._open = False
        self.broken = False

    async def open(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        except OSError as e:
            self._fail(
                f"Could not fetch prefill parallel info from bootstrap_addr: {self._named()} ({e.strerror or e})"
            )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open = True
        for room in self._rooms:
            self.write(room=room)

    def ask(self, room: int, on_arrival: Callable[[Arrival], None]) -> None:
        self._rooms[room] = on_arrival
        if self._open:
            self.write(room=room)

    def cancel(self, room: int) -> None:
        if self._rooms.pop(room, None) is not None and self._open:
            self.write(room=room, cancel=True)

    def received(self, message: dict[str, Any]) -> None:
        on_arrival = self._rooms.pop(int(message["room"]), None)
        if on_arrival is not None:
            on_arrival(
                Arrival(bool(message["ok"]), int(message.get("cached_tokens", 0)), str(message.get("reason", "")))
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"Lost connection with prefill instance (bootstrap_addr: {self._named()})")

    def _fail(self, reason: str) -> None:
        self.broken, self._open = True, False
        rooms, self._rooms = self._rooms, {}
        for on_arrival in rooms.values():
            on_arrival(Arrival(False, reason=reason))

    def _named(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"
