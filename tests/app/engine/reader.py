"""A light closed-loop client: `python -m tests.app.engine.reader PORT STREAMS TOKENS SECONDS` reads and throws away."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from typing import cast

import uvloop


class Reader(asyncio.Protocol):
    """One stream after another on one connection, until the deadline."""

    def __init__(self, name: str, tokens: int, deadline_s: float) -> None:
        self.name, self.tokens, self.deadline_s = name, tokens, deadline_s
        self.sent, self.tail = 0, b""
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.ask()

    def ask(self) -> None:
        self.sent += 1
        body = {"prompt": f"{self.name} {self.sent}", "max_tokens": self.tokens, "ignore_eos": True, "stream": True}
        data = json.dumps({"model": "m"} | body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
        )
        self.transport.write(f"{head}\r\n\r\n".encode() + data)

    def data_received(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-8:]
        if self.tail.endswith(b"0\r\n\r\n"):
            self.tail = b""
            if time.monotonic() < self.deadline_s:
                self.ask()
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(None)


async def read(port: int, streams: int, tokens: int, seconds: float) -> None:
    """Keeps so many streams busy for so many seconds; they start spread over the first of them."""
    loop, deadline_s, readers = asyncio.get_running_loop(), time.monotonic() + seconds, []
    for i in range(streams):
        make = partial(Reader, f"u{i}", tokens, deadline_s)
        readers.append((await loop.create_connection(make, "127.0.0.1", port))[1])
        await asyncio.sleep(1.0 / streams)
    await asyncio.gather(*(r.over for r in readers))


if __name__ == "__main__":
    uvloop.run(read(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
