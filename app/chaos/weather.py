"""A TCP proxy before the router that makes bad weather: delay, loss, a narrow line, stalls, resets, rubbish."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from dataclasses import dataclass
from typing import Self

from app.stack.local import free_port

READ_BYTES = 65536
# What TCP's first retransmission takes on a path of short delay (RFC 6298: at least 200 ms on Linux).
RETRANSMISSION_S = 0.2
CONNECT_S = 5.0
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_RUBBISH = bytes((b + 77) % 256 for b in range(256))


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to answers on their way back. loss and resets: share of reads; stall: one stream stands still."""

    delay_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = 0.0
    resets: float = 0.0
    stall: bool = False
    refuse: bool = False
    rubbish: bool = False


FAIR = Weather()


class Proxy:
    """Listens on loopback and passes everything on to host:port; `weather` may be changed at any moment."""

    def __init__(self, target_port: int, seed: int = 0) -> None:
        self.weather, self.port = FAIR, free_port()
        self.target_port = target_port
        self._chance = random.Random(seed)
        self._stalled: _Line | None = None
        self._listening: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._listening = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        if self._listening is not None:
            self._listening.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            opening = asyncio.open_connection("127.0.0.1", self.target_port)
            server, forth = await asyncio.wait_for(opening, CONNECT_S)
        except (OSError, TimeoutError):
            back.transport.abort()
            return
        line = _Line(back)
        try:
            await asyncio.gather(self._forward(client, forth, back), self._bring_back(server, line))
        except (OSError, asyncio.IncompleteReadError):
            back.transport.abort()
        finally:
            forth.close()
            line.close()

    async def _forward(
        self, client: asyncio.StreamReader, forth: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await client.read(READ_BYTES):
            if self.weather.refuse:
                back.write(REFUSAL)
            else:
                forth.write(data)
                await forth.drain()
        forth.close()

    async def _bring_back(self, server: asyncio.StreamReader, line: _Line) -> None:
        while data := await server.read(READ_BYTES):
            weather = self.weather
            if weather.stall and self._stalled is None and b"data:" in data:
                self._stalled = line
            while self._stalled is line and self.weather.stall:
                await asyncio.sleep(0.05)
            if not weather.stall:
                self._stalled = None
            if weather.resets and self._chance.random() < weather.resets:
                line.back.transport.abort()
                return
            lost = self._chance.random() < weather.loss
            line.send(data.translate(_RUBBISH) if weather.rubbish else data, weather, lost)
        line.close()


class _Line:
    """The way back of one connection: bytes keep their order, whatever holds one of them up holds up the rest."""

    def __init__(self, back: asyncio.StreamWriter) -> None:
        self.back = back
        self._due_s = 0.0

    def send(self, data: bytes, weather: Weather, lost: bool) -> None:
        loop = asyncio.get_running_loop()
        sent_s = max(self._due_s - weather.delay_s, loop.time())
        sent_s += len(data) / weather.bytes_per_s if weather.bytes_per_s else 0.0
        self._due_s = sent_s + weather.delay_s + (RETRANSMISSION_S if lost else 0.0)
        if self._due_s <= loop.time():
            self._write(data)
        else:
            loop.call_at(self._due_s, self._write, data)

    def close(self) -> None:
        asyncio.get_running_loop().call_at(self._due_s, self._close)

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.back.write(data)

    def _close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.back.close()
