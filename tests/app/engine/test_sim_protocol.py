from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus

import pytest
import uvloop

from app.engine.sim import protocol
from app.engine.sim.protocol import Connection, Handler, Request

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def spoken(handler: Handler, *sent: bytes, until: Callable[[bytes], bool]) -> bytes:
    """What a server with this handler answers, until it is enough or the connection ends."""

    async def talk() -> bytes:
        server = await asyncio.get_running_loop().create_server(lambda: Connection(handler), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            received = b""
            with contextlib.closing(writer):
                for part in sent:
                    writer.write(part)
                    await asyncio.sleep(0.01)
                while not until(received) and (part := await asyncio.wait_for(reader.read(65536), 5)):
                    received += part
            return received

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(talk())


def echo(request: Request, connection: Connection) -> None:
    connection.reply(HTTPStatus.OK, request.body.decode())


def test_body_that_comes_in_pieces_is_whole() -> None:
    head = b"POST / HTTP/1.1\r\ncontent-length: 6\r\n\r\n"
    assert spoken(echo, head + b"ab", b"cd", b"ef", until=lambda r: r.endswith(b"abcdef")).startswith(b"HTTP/1.1 200")


def test_chunked_request_body_is_read() -> None:
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert spoken(echo, head + b"3\r\nabc\r\n0\r\n\r\n", until=lambda r: r.endswith(b"abc"))


def test_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    head = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    assert spoken(echo, head, until=bool).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")


def test_fault_in_a_handler_is_500_and_shown(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(request: Request, connection: Connection) -> None:
        raise KeyError("lost")

    assert b"500 Internal Server Error" in spoken(broken, GET, until=bool)
    assert "KeyError: 'lost'" in capfd.readouterr().err


def test_chunk_over_the_limit_ends_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_BODY_BYTES", 10)
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert b" 413 " in spoken(echo, head + b"b\r\nabcdefghijk\r\n", until=bool)


def test_client_that_stops_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_UNSENT_BYTES", 1 << 20)
    sent = list[int]()

    def flood(request: Request, connection: Connection) -> None:
        connection.begin_stream()
        while not connection.closing and len(sent) < 1000:
            sent.append(connection.send(b"x" * (1 << 20)))

    with contextlib.suppress(ConnectionResetError):
        spoken(flood, GET, until=lambda r: False)
    assert len(sent) < 100


def test_requests_beyond_the_pipeline_limit_end_the_connection() -> None:
    def silent(request: Request, connection: Connection) -> None:
        pass

    with contextlib.suppress(ConnectionResetError):
        assert spoken(silent, GET * (protocol.MAX_PIPELINED + 2), until=bool) == b""
