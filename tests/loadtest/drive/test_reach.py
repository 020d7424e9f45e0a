from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.errors import NotReadyError, UsageError
from loadtest.client.connection import Exchange
from loadtest.drive.feed import Look
from loadtest.drive.reach import Patience, await_servers
from loadtest.order import StartOrder
from tests.loadtest.conftest import free_port

NAN = float("nan")
FAULT = Look("http_status: HTTP 503: b''", -1, -1, NAN, NAN, 1.0)
TEXT = Look("", 1, 2, 1.0, 1.0, 3.0)
SHORT = Look("short_output: 1 tokens for 2 asked", 1, 1, 1.0, NAN, 3.0)


class Silent(BaseHTTPRequestHandler):
    """Knows no path at all: every request is answered by 501."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def serve(port: int) -> HTTPServer:
    server = HTTPServer(("127.0.0.1", port), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def served_url() -> Iterator[str]:
    server = serve(0)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def order_at(url: str, **urls: str) -> StartOrder:
    given: dict[str, Any] = {"router_url": url, **urls}
    return StartOrder(0, 0, "v1", "", (1,), "s", out=Path(), **given)


def sleeping(slept: list[float]) -> Callable[[float], None]:
    return slept.append


def test_any_answer_is_one(served_url: str) -> None:
    slept: list[float] = []
    await_servers(order_at(served_url, decode_url=served_url, prefill_url=served_url), 0, sleeping(slept))
    assert slept == []


@pytest.mark.parametrize(
    ("name", "option"),
    [("router_url", "--host"), ("decode_url", "--decode-ab-decode-url"), ("prefill_url", "--decode-ab-prefill-url")],
)
def test_a_server_that_is_not_there_is_named_with_its_option(served_url: str, name: str, option: str) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(
        NotReadyError, match=rf"^{nowhere} does not answer \(Conn.*start the server or correct {option};"
    ):
        await_servers(order_at(served_url, **{name: nowhere}), 0, sleeping([]))


def test_a_server_that_comes_up_in_time_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    port, servers = free_port(), list[HTTPServer]()
    await_servers(order_at(f"http://127.0.0.1:{port}"), 60, lambda _: servers.append(serve(port)))
    servers[0].shutdown()
    servers[0].server_close()
    assert [r.message for r in caplog.records if f":{port} does not answer yet" in r.message]


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://127.0.0.1:0"])
def test_an_address_of_another_form_is_refused(served_url: str, url: str) -> None:
    with pytest.raises(UsageError, match=r"needs http://host:port"):
        await_servers(order_at(served_url, decode_url=url), 0, sleeping([]))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:599999", "Port out of range 0-65535"),
        ("http://127.0.0.1:web", "Port could not be cast"),
        ("http://[::1", "Invalid IPv6 URL"),
        (f"http://{'a' * 64}:80", "label too long"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"{why}.*; the driver needs http://host:port"):
        await_servers(order_at(url), 0, sleeping([]))


def checked(looks: list[Look], now_s: float, *pending_since_s: float) -> None:
    """Patience of 5 s from 100 on that saw these requests end, checked at a later moment."""
    clock = iter((100.0, now_s))
    patience = Patience(5, lambda: next(clock))
    for look in looks:
        patience.saw(look)
    exchanges = [Exchange(0, b"") for _ in pending_since_s]
    for exchange, since_s in zip(exchanges, pending_since_s, strict=True):
        exchange.sent_ns = int(since_s * 1e9)
    patience.check(order_at("http://x"), exchanges)


@pytest.mark.parametrize(
    ("looks", "now_s", "pending_since_s"),
    [
        ([], 200.0, ()),
        ([FAULT], 104.0, ()),
        ([FAULT, TEXT, FAULT], 200.0, ()),
        ([SHORT], 200.0, ()),
        ([FAULT], 105.0, (103.0,)),
    ],
    ids=["nothing ended", "too early", "one came true", "some text", "one is still out"],
)
def test_a_run_goes_on_while_something_may_come_of_it(
    looks: list[Look], now_s: float, pending_since_s: tuple[float, ...]
) -> None:
    checked(looks, now_s, *pending_since_s)


def test_a_run_of_faults_alone_ends_with_their_number_and_the_last() -> None:
    with pytest.raises(
        NotReadyError, match=r"http://x answered 2 requests with faults .* at last http_status: HTTP 503"
    ):
        checked([FAULT, FAULT], 105.0, 104.9)
