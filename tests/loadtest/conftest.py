"""A clocked mock for the client's tests, and rows of an ideal closed loop for the window's."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.cells import Cell
from loadtest.client.rows import Row, Rows, rows_of, table_of
from loadtest.measure.window import measure
from loadtest.plan import Plan, Start, WindowRules

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def mock_url() -> Iterator[str]:
    """A clocked mock process with the built-in shapes and its own record of the truth."""
    port = free_port()
    argv = [sys.executable, "-m", "app.engine.sim", "--role", "single", "--port", str(port), "--pdeathsig"]
    with subprocess.Popen([*argv, "--script", "builtin", "--truth", "memory"], cwd=ROOT) as process:
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_until_healthy(url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(f"no mock at {url}")


def closed_loop(
    concurrency: int = 4,
    seconds: float = 30.0,
    output_tokens: int = 50,
    ttft_ms: float = 50.0,
    itl_ms: float = 10.0,
    **changes: Any,
) -> list[Row]:
    """Requests of an ideal closed loop from t = 0 on, staggered; `changes` replace fields of every row."""
    rows: list[Row] = []
    for slot in range(concurrency):
        at, sequence = 0, 0
        tokens = max(1, output_tokens * (slot + 1) // concurrency)
        while at < seconds * 1e9:
            first = at + int(ttft_ms * MS)
            arrivals = [first + int(i * itl_ms * MS) for i in range(tokens)]
            rows.append(row(slot, concurrency, sequence, at, arrivals, **changes))
            at, sequence, tokens = arrivals[-1] + 1, sequence + 1, output_tokens
    return rows


def row(slot: int, concurrency: int, sequence: int, sent_ns: int, arrivals: list[int], **changes: Any) -> Row:
    """One good request; `changes` replace its fields."""
    good = Row(
        user=slot,
        concurrency=concurrency,
        sequence=sequence,
        worker=0,
        prompt_sha256=f"{concurrency}/{slot}/{sequence}",
        scheduled_ns=sent_ns,
        sent_ns=sent_ns,
        ended_ns=arrivals[-1] if arrivals else sent_ns,
        arrivals_ns=arrivals,
        event_tokens=[1] * len(arrivals),
        token_source="usage",
        silent_tokens=0,
        glued=0,
        requested_tokens=len(arrivals),
        usage_tokens=len(arrivals),
        prompt_tokens=64,
        cached_tokens=0,
        finish_reason="length",
        status=200,
        error_kind="",
        error="",
    )
    return dataclasses.replace(good, **changes)


@pytest.fixture
def loop() -> Callable[..., list[Row]]:
    """Makes the rows of an ideal closed loop."""
    return closed_loop


@pytest.fixture
def one_row() -> Callable[..., Row]:
    """Makes one good row."""
    return row


@pytest.fixture
def as_rows() -> Callable[[list[Row]], Rows]:
    """Turns a list of rows into the arrays that read_rows gives."""
    return lambda rows: rows_of(table_of(rows))


@pytest.fixture
def load_record() -> Callable[..., dict[str, Any]]:
    """Makes a load.json with one level and a healthy client."""

    def make(concurrency: int = 4, start_s: float = 5, end_s: float = 25, **changes: Any) -> dict[str, Any]:
        guards = {"loop_lag_p99_ms": 1.0, "cpu_share": 0.2}
        level = {"concurrency": concurrency, "entered_ns": 0, "filled_ns": int(1e9), "reasons": [], "guards": guards}
        level |= {"window_start_ns": int(start_s * 1e9), "window_end_ns": int(end_s * 1e9)}
        return {"levels": [level | changes.pop("level", {})], "time_scale": 1.0, "server": {"samples": []}} | changes

    return make


@pytest.fixture
def plan() -> Plan:
    """A plan with a 20 s window."""
    return Plan(1, {"v": "c"}, (4,), blocks=4, window=WindowRules(settle_s=4, window_s=20))


@pytest.fixture
def cell(
    as_rows: Callable[[list[Row]], Rows], load_record: Callable[..., dict[str, Any]], plan: Plan
) -> Callable[..., Cell]:
    """Measures rows with one level."""

    def make(rows: list[Row], **changes: Any) -> Cell:
        return measure(Start(2, 1, "v", (4,)), as_rows(rows), load_record(**changes), plan)[0]

    return make
