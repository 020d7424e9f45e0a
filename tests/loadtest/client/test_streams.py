"""The streaming client on real sockets: stamps, reuse of connections, faults of the connection."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest

from app.errors import UsageError
from loadtest.client import connection
from loadtest.client.carrier import request_body
from loadtest.client.connection import Exchange
from loadtest.client.framing import deframe
from loadtest.client.recorder import reply_of
from loadtest.client.streams import StreamClient, http_request
from loadtest.order import StartOrder

ClientOf = Callable[..., StreamClient]


@pytest.fixture
def client_of() -> Iterator[ClientOf]:
    """Makes started clients and closes them."""
    clients: list[StreamClient] = []

    def make(url: str, stall_s: float = 5.0) -> StreamClient:
        clients.append(StreamClient(url, stall_s))
        clients[-1].start()
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def exchange(url: str, slot: int = 0, shape: str = "plain", tokens: int = 10, salt: int = 0) -> Exchange:
    order = StartOrder(0, 0, "v", "", (1,), "s", url, Path())
    body = json.dumps(request_body(order, f"@shape:{shape} {slot} {salt} {time.monotonic_ns()}", tokens)).encode()
    return Exchange(slot, http_request(url, "/v1/completions", body))


def run(client: StreamClient, *exchanges: Exchange) -> None:
    for one in exchanges:
        client.begin(one)
    for one in exchanges:
        assert one.done.wait(timeout=20)


def test_stamps_rise_and_every_token_has_one(mock_url: str, client_of: ClientOf) -> None:
    one = exchange(mock_url, tokens=20)
    run(client_of(mock_url), one)
    reply = reply_of(one)
    assert (one.status, one.error_kind, sum(reply.tokens)) == (200, "", 20)
    assert all(a <= b for a, b in pairwise([one.sent_ns, *one.stamps, one.ended_ns]))
    assert len(one.stamps) == len(one.reads)


def test_tokens_are_not_glued_together_by_the_reader(mock_url: str, client_of: ClientOf) -> None:
    one = exchange(mock_url, tokens=50)
    run(client_of(mock_url), one)
    gaps = [b - a for a, b in pairwise(one.stamps[r] for r in reply_of(one).reads)]
    assert sum(g == 0 for g in gaps) < len(gaps) / 2


def test_connection_of_a_slot_is_used_again(mock_url: str, client_of: ClientOf) -> None:
    client = client_of(mock_url)
    ports = set()
    for salt in range(3):
        one = exchange(mock_url, salt=salt, tokens=2)
        run(client, one)
        ports.add(id(client._idle[0]))
    assert len(ports) == 1


def test_two_hundred_streams_are_open_at_once(mock_url: str, client_of: ClientOf) -> None:
    # Longer than a busy machine takes to open them all.
    many = [exchange(mock_url, slot, tokens=150) for slot in range(200)]
    run(client_of(mock_url), *many)
    assert {e.status for e in many} == {200}
    assert max(e.stamps[0] for e in many) < min(e.ended_ns for e in many)


def test_connections_opened_ahead_are_used(mock_url: str, client_of: ClientOf) -> None:
    client = client_of(mock_url)
    client.open(range(4))
    gevent.sleep(0.5)
    opened = dict(client._idle)
    run(client, *[exchange(mock_url, slot, tokens=2) for slot in range(4)])
    assert (len(opened), client._idle) == (4, opened)


def test_a_slot_keeps_one_connection_when_its_first_request_overtakes_the_opening(
    mock_url: str, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[connection.Connection] = []
    init = connection.Connection.__init__

    def noted(self: connection.Connection, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(connection.Connection, "__init__", noted)
    client = client_of(mock_url)
    client.open([0])
    run(client, exchange(mock_url, tokens=5))
    gevent.sleep(0.2)
    assert [one for one in made if not one.closed] == [client._idle[0]]


def test_cut_ends_what_is_in_flight(mock_url: str, client_of: ClientOf) -> None:
    client = client_of(mock_url)
    one = exchange(mock_url, tokens=5000)
    client.begin(one)
    gevent.sleep(0.4)
    client.cut()
    assert one.done.wait(timeout=5)
    assert one.error_kind == "cut"
    assert len(reply_of(one).tokens) > 3


def test_nobody_listening_is_a_connect_fault(client_of: ClientOf) -> None:
    one = exchange("http://127.0.0.1:9")
    run(client_of("http://127.0.0.1:9"), one)
    assert one.error_kind == "connect"
    assert "9" in one.error


@pytest.fixture
def raw_server() -> Iterator[Callable[[bytes], str]]:
    """Serves fixed bytes to one request, then closes."""
    sockets = []

    def serve(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def accept() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer)

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "disconnected"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "disconnected"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", "disconnected"),
        (b"nonsense\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\n\r\nbody until the end", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
    ],
)
def test_every_broken_response_has_its_kind(
    raw_server: Callable[[bytes], str], client_of: ClientOf, answer: bytes, kind: str
) -> None:
    url = raw_server(answer)
    one = exchange(url)
    run(client_of(url), one)
    assert one.error_kind == kind


def test_split_terminal_chunk_ends_the_response(raw_server: Callable[[bytes], str], client_of: ClientOf) -> None:
    url = raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n")
    one = exchange(url)
    run(client_of(url), one)
    assert (deframe(one.reads).data, one.error_kind) == (b"0\r\n\r\n", "")


def test_response_without_end_is_cut_off_before_it_fills_the_memory(
    raw_server: Callable[[bytes], str], client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LIMIT_RESPONSE_BYTES", 1_000_000)
    url = raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nabcde\r\n" * 300_000)
    one = exchange(url)
    run(client_of(url), one)
    assert one.error_kind == "too_large"
    assert one.size < 2_000_000


@pytest.mark.parametrize("url", ["https://x", "router:8000", "", "http://"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://host:port"):
        http_request(url, "/", b"")
