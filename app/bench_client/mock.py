"""The clocked mock as a service for as long as a check lasts."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.engine import Command
from app.environment import ROOT
from app.errors import NotReadyError
from app.stack.local import free_port
from app.stack.process import Service, wait_until
from loadtest.client.conformance import Check, check_client

START_S = 30.0


@contextmanager
def clocked_mock(base: Mapping[str, float] | None = None, truth: str = "memory") -> Iterator[str]:
    """The URL of a running mock that keeps the truth; base: settings of all its shapes, such as ttft_ms and itl_ms.

    truth: "memory", or a file that holds it once the mock has stopped.
    """
    with tempfile.TemporaryDirectory(prefix="decode-ab-mock-") as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"base": dict(base or {})}))
        port = free_port()
        argv = (sys.executable, "-m", "app.engine.sim", "--role", "single", "--port", str(port), "--pdeathsig")
        command = Command((*argv, "--script", str(script), "--truth", truth), {"PYTHONPATH": str(ROOT)})
        service = Service("clocked mock", command, Path(folder) / "mock.log")
        service.start()
        try:
            url = f"http://127.0.0.1:{port}"
            if not wait_until(lambda: _healthy(url) or not service.running, START_S) or not service.running:
                raise NotReadyError(f"the clocked mock did not start: {' | '.join(service.tail(3))}")
            yield url
        finally:
            service.stop()


@contextmanager
def pinned(number: int) -> Iterator[None]:
    """Keeps what is started meanwhile on one core, so that mock and client do not take turns."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # an outer call may have narrowed it
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def check_conformance() -> list[Check]:
    """Plays every stream shape to the load client; a campaign may trust it when all checks are ok."""
    with clocked_mock() as url:
        return check_client(url)


def take_truth(url: str) -> list[dict[str, Any]]:
    """The mock's records since they were last cleared."""
    with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:
        records: list[dict[str, Any]] = json.load(answer)["records"]
        return records


def clear_truth(url: str) -> None:
    """Forgets the records so far."""
    urllib.request.urlopen(f"{url}/truth/clear", timeout=10).close()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
