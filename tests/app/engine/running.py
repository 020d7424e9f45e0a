"""Engine processes for tests: started on free ports, stopped whatever happens, and spoken to over plain sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
KERNEL = "_tiled_sparse_decode_kernel"


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]


def write_kernel(path: Path, *configs: tuple[int, int, int]) -> Path:
    """A kernel file whose autotune list holds these (BLOCK_T, num_warps, num_stages)."""
    listed = ", ".join(
        f'triton.Config({{"BLOCK_T": {block}}}, num_warps={warps}, num_stages={stages})'
        for block, warps, stages in configs
    )
    head = f'import triton\n\n\n@triton.autotune(configs=[{listed}], key=["topk_rounded"])\n@triton.jit\n'
    path.write_text(f"{head}def {KERNEL}(q, topk_rounded, BLOCK_T):\n    pass\n")
    return path


@dataclass(frozen=True)
class Running:
    """A process that answers on `port`."""

    process: subprocess.Popen[str]
    port: int

    def get(self, path: str) -> Any:
        """JSON of a GET."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """Text of a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, label: str = "") -> float:
        """Value of the first series of a metric that carries the label."""
        lines = self.text("/metrics").splitlines()
        return float(next(x for x in lines if x.startswith(name + "{") and label in x).rsplit(" ", 1)[1])

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Status and text of a POST."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json", **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def open(self, body: Any, path: str = "/v1/completions", headers: str = "") -> socket.socket:
        """Sends a POST and leaves the connection to the test."""
        data = json.dumps(body).encode()
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}"
        connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        return connection


@contextlib.contextmanager
def running(
    command: Sequence[str], port: int, ready: str = "/health", env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Running]:
    """Runs a command, yields once it answers 200 on `ready`, stops it on leaving; env is added to this process's."""
    everything = {**os.environ, **env}
    process = subprocess.Popen(
        command, cwd=ROOT, env=everything, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_for_ok(f"http://127.0.0.1:{port}{ready}", process)
        yield Running(process, port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def engine_command(*arguments: str) -> list[str]:
    """Command line of an engine process."""
    return [sys.executable, "-m", "app.engine.sim", *arguments]


@contextlib.contextmanager
def engine(*arguments: str, ready: str = "/health") -> Iterator[Running]:
    """An engine process on a free port."""
    (port,) = free_ports(1)
    with running(engine_command("--port", str(port), *arguments), port, ready) as started:
        yield started


def wait_for_ok(url: str, process: subprocess.Popen[str], timeout_s: float = 60) -> None:
    """Waits for a 200; fails with the process's output when it ends first."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()[0]}")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.02)
    raise AssertionError(f"{url} did not answer 200 in {timeout_s} s")


def events(text: str) -> list[Any]:
    """The JSON of a stream's events; the terminator as the string [DONE]."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


def read_all(connection: socket.socket) -> bytes:
    """Everything until the peer closes; ConnectionResetError when it resets."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received
