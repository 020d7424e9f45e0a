"""What is asked of services, and how long for."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from app import answer
from app.errors import NotReadyError


def test_who_takes_no_connection_is_given_up_long_before_who_is_slow_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_CONNECT_S", 0.3)
    began = time.monotonic()
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        # What comes after the one that waits is dropped, as for a container that is gone.
        full.listen(0)
        waiting.connect(full.getsockname())
        with pytest.raises(NotReadyError, match="no answer"):
            answer.get(f"http://127.0.0.1:{full.getsockname()[1]}", 10.0)
    assert time.monotonic() - began < 5


def said_by(words: list[bytes], pause_s: float = 0.0) -> Iterator[str]:
    """The URL of a server that answers one request with these words, a pause before each, and hangs up at the end."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(65536)
                for word in words:
                    time.sleep(pause_s)
                    line.sendall(word)
                done.wait(20)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        done.set()
        serving.join()


@pytest.fixture
def rubbish() -> Iterator[str]:
    yield from said_by([bytes(range(128, 200))])


@pytest.fixture
def hesitant() -> Iterator[str]:
    yield from said_by([b"H", b"TTP/1.1 200 OK\r\nContent-Le", b"ngth: 2\r\n\r\n{", b"}"], pause_s=0.3)


def test_rubbish_is_refused_at_once_though_its_line_never_ends(rubbish: str) -> None:
    began = time.monotonic()
    with pytest.raises(NotReadyError, match="answered what is no HTTP"):
        answer.post(f"{rubbish}/v1/completions", {}, 15.0)
    assert time.monotonic() - began < 5


def test_rubbish_is_a_fault_of_the_request_to_whoever_asks_by_a_session(rubbish: str) -> None:
    with answer.session() as asking, pytest.raises(requests.RequestException, match="answered what is no HTTP"):
        asking.get(rubbish, timeout=15.0)


@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", "127.0.0.1"), ("[::1]", r"\[::1\]")])
def test_who_is_not_there_is_told_by_address_and_not_by_what_the_lab_asks_with(host: str, named: str) -> None:
    with pytest.raises(NotReadyError, match=rf"\({named}:9: ") as refused:
        answer.get(f"http://{host}:9/health", 5.0)
    assert not re.search(r"_Pool|_Connection|host=", str(refused.value))


def test_who_begins_late_and_word_by_word_is_waited_for(hesitant: str) -> None:
    assert answer.get(hesitant, 15.0).object() == {}
