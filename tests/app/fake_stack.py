"""A stack whose three services are one small HTTP server in this process: answers the canary and the proof at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from app.engine import Endpoints
from app.engine.proof import Proof, read_proof
from app.kernel.placed import PlacedKernel


class FakeStack:
    """Serves what it was switched to. `lies` overrides fields of the proof.

    `dead` is what `alive` reports, `words` the log of every service. An answer takes `slow_s`; `said` is its text.
    """

    runtime = "local"
    simulated = True

    def __init__(self) -> None:
        self.model, self.tokens, self.silent, self.slow_s = "fake", 0, False, 0.0
        self.said = " some words"
        self.lies: dict[str, Any] = {}
        self.dead: list[str] = []
        self.words: list[str] = []
        self.switched: list[str] = []
        self.downs = 0
        self._kernel: PlacedKernel | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def manifest(self) -> dict[str, str]:
        return {"engine": "fake"}

    def up(self, kernel: PlacedKernel, label: str) -> Endpoints:
        return self.switch(kernel, label)

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        self._kernel = kernel
        self.switched.append(label)
        return self.endpoints

    @property
    def endpoints(self) -> Endpoints:
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return Endpoints(url, url, url, self.model)

    def proof(self, endpoints: Endpoints) -> Proof:
        return read_proof(endpoints)

    def alive(self) -> Sequence[str]:
        return self.dead

    def tail(self, service: str, lines: int = 20) -> list[str]:
        return self.words

    def down(self) -> None:
        self.downs += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def info(self) -> dict[str, Any]:
        kernel = self._kernel
        if kernel is None:
            return {}
        own = {"variant": kernel.variant, "selector": kernel.selector, "kernel_sha256": kernel.sha256}
        return {
            "served_model_name": self.model,
            "decode_ab": own | {"config": "(16,4,2)", "simulated": True, "model": self.model} | self.lies,
        }

    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        time.sleep(self.slow_s)
        self.tokens += 0 if self.silent else int(asked["max_tokens"])
        usage = {"completion_tokens": asked["max_tokens"]}
        return {"model": "fake", "choices": [{"text": self.said}], "usage": usage}


def _handler(stack: FakeStack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._send(f"sglang:generation_tokens_total {stack.tokens}\n".encode())
            else:
                self._send(json.dumps(stack.info()).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(json.dumps(stack.complete(asked)).encode())

        def log_message(self, *_: Any) -> None:
            pass

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
