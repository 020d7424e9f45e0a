"""Answers kept open before a server that looks whether its client is still there, as SGLang does."""

from __future__ import annotations

import gc
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.engine import Endpoints
from app.engine.sglang.kept_busy import kept_busy
from app.errors import NotReadyError
from tests.app.test_answer import said_by


@dataclass
class Service:
    """What became of its answers: open ones as the server sees them."""

    status: int = 200
    sockets: list[socket.socket] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(self.url, self.url, self.url, "any")

    def open(self) -> int:
        """Answers whose client has not hung up."""
        return sum(not select.select([s], [], [], 0.2)[0] for s in self.sockets)


@pytest.fixture
def service() -> Iterator[Service]:
    known = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(known.status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"9\r\ndata: {}\n\r\n")
            if known.status != 200:
                self.wfile.write(b"0\r\n\r\n")
                return
            known.sockets.append(self.connection)
            known.ended.wait(20)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield known
        known.ended.set()
        server.shutdown()


def test_every_answer_stays_open_until_the_block_ends(service: Service) -> None:
    with kept_busy(service.endpoints, ["a", "b", "c"], 8):
        gc.collect()
        assert service.open() == 3
    assert service.open() == 0


def test_refused_answer_is_a_fault(service: Service) -> None:
    service.status = 503
    with pytest.raises(NotReadyError, match="HTTP 503"), kept_busy(service.endpoints, ["a", "b"], 8):
        pass


@pytest.fixture
def rubbish() -> Iterator[str]:
    yield from said_by([b"\x15\x03\x01 no HTTP"])


def test_an_answer_that_is_no_http_is_a_fault_in_a_line(rubbish: str) -> None:
    said = r"/v1/completions answered what is no HTTP \(it begins with b'\\x15\\x03\\x01 n'\); see what listens there"
    with pytest.raises(NotReadyError, match=said), kept_busy(Endpoints(rubbish, rubbish, rubbish, "any"), ["a"], 8):
        pass
