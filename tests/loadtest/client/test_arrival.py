"""Stamps are the kernel's: of arrival, however late the reader is."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from loadtest.client.arrival import MOST_LAG_NS, SO_TIMESTAMPNS, arrived_ns, ask_for_stamps
from loadtest.client.connection import Exchange
from loadtest.client.streams import StreamClient, http_request

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def stamp(wall_ns: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@ll", *divmod(wall_ns, 1_000_000_000)))]


def test_a_stamp_is_taken_as_an_age_on_the_monotonic_clock() -> None:
    found = arrived_ns(stamp(time.time_ns() - 30_000_000))
    assert 30 <= (time.monotonic_ns() - found) / 1e6 < 35


def test_what_comes_between_the_clocks_makes_no_stamp_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    real, slow = time.time_ns, iter([0.03, 0.03])

    def interrupted() -> int:
        time.sleep(next(slow, 0))
        found = real()
        time.sleep(next(slow, 0))
        return found

    sent = time.monotonic_ns()
    ancillary = stamp(real())
    monkeypatch.setattr(time, "time_ns", interrupted)
    assert 0 <= (arrived_ns(ancillary) - sent) / 1e6 < 5


@pytest.mark.parametrize("age_ns", [-5_000_000_000, 2 * MOST_LAG_NS], ids=["clock put back", "clock put forward"])
def test_a_stepped_wall_clock_leaves_the_instant_of_the_read(age_ns: int) -> None:
    before = time.monotonic_ns()
    assert before <= arrived_ns(stamp(time.time_ns() - age_ns)) <= time.monotonic_ns()


@pytest.mark.parametrize("ancillary", [[], [(1, 2, b"x")], [(socket.SOL_SOCKET, SO_TIMESTAMPNS, b"short")]])
def test_without_a_stamp_it_is_the_instant_of_the_read(ancillary: list[tuple[int, int, bytes]]) -> None:
    before = time.monotonic_ns()
    assert before <= arrived_ns(ancillary) <= time.monotonic_ns()


def test_a_socket_that_takes_no_stamps_is_used_without() -> None:
    class Refusing:
        def setsockopt(self, *_: object) -> None:
            raise OSError("not here")

    ask_for_stamps(Refusing())


@pytest.fixture
def peer() -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    """A server whose answers are written by hand: its URL, and its side of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: listener.accept()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="stamps of this kind are Linux's")
def test_a_late_reader_does_not_make_a_late_token(peer: tuple[str, Callable[[], socket.socket]]) -> None:
    url, accept = peer
    client = StreamClient(url, 5.0)
    client.start()
    one = Exchange(0, http_request(url, "/", b"{}"))
    client.begin(one)
    server = accept()
    server.recv(65536)
    client._loop.call_soon_threadsafe(time.sleep, 0.3)
    time.sleep(0.05)
    left = time.monotonic_ns()
    server.sendall(HEAD + b"1\r\nx\r\n0\r\n\r\n")
    assert one.done.wait(timeout=5)
    read = time.monotonic_ns()
    client.close()
    server.close()
    assert (read - left) / 1e6 > 150
    assert abs(one.stamps[0] - left) / 1e6 < 50
