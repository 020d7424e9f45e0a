"""96 streams of 100 tokens/s each from one core, every token within 2 ms of its plan at the 99th percentile."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.app.engine.pd import stack
from tests.app.engine.running import ROOT, Running, engine, write_kernel

STREAMS = 96
TICK_S = 0.01
SECONDS = 4.0
BARE_SECONDS = 2.0
TRIES = 4
LIMIT_MS = 2.0
# The calibrated step at 96 running requests lasts 113.609 ms: so much faster, it lasts 10.
SCALE = str(0.113609 / TICK_S)
TIMING = ["--time-scale", SCALE, "--noise", "none", "--truth", "memory"]

DRAIN = """
import select, socket, sys
c = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
while all(x.recv(65536) for x in select.select(c, [], [])[0]):
    pass
"""


def pin(pid: int, core: int) -> None:
    os.sched_setaffinity(pid, {sorted(os.sched_getaffinity(0))[core]})


def read(port: int) -> None:
    command = [sys.executable, "-m", "tests.app.engine.reader", str(port), str(STREAMS), "200", str(SECONDS)]
    client = subprocess.Popen(command, cwd=ROOT)
    pin(client.pid, -1)
    assert client.wait(timeout=60) == 0


def lag_p99_ms(engine: Running) -> float:
    records = engine.get("/truth")["records"]
    engine.post("/truth/clear", b"")
    late = np.concatenate([np.subtract(r["sent_ns"], r["planned_ns"]) for r in records]) / 1e6
    rate = sum(sum(r["tokens"]) for r in records) / (SECONDS + 1)
    # A client that was starved asked for too little: that says nothing of the engine.
    return float(np.quantile(late, 0.99)) if rate > 0.7 * STREAMS / TICK_S else float("inf")


def bare_lag_p99_ms() -> float:
    """The same bursts of writes by a bare loop on the same core: what this machine allows just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", DRAIN, str(server.getsockname()[1]), str(STREAMS)]
        client = subprocess.Popen(command)
        pin(client.pid, -1)
        late = burst([server.accept()[0] for _ in range(STREAMS)])
        client.wait()
    return float(np.quantile(late, 0.99))


def burst(connections: list[socket.socket]) -> list[float]:
    allowed, late, start = os.sched_getaffinity(0), list[float](), time.monotonic() + 0.1
    pin(0, 0)
    for tick in range(round(BARE_SECONDS / TICK_S)):
        planned = start + tick * TICK_S
        select.select([], [], [], max(0.0, planned - time.monotonic()))
        for connection in connections:
            late.append((time.monotonic() - planned) * 1e3)
            connection.send(b"x" * 230)
    os.sched_setaffinity(0, allowed)
    for connection in connections:
        connection.close()
    return late


def holds(engine: Running, front: Running) -> None:
    seen = list[float]()
    for _ in range(TRIES):
        read(front.port)
        seen.append(lag_p99_ms(engine))
        if seen[-1] < LIMIT_MS:
            return
        # Where bare writes are as late no further try could tell.
        skip_where_bare_writes_are_late(LIMIT_MS, seen)
    skip_where_bare_writes_are_late(LIMIT_MS / 2, seen)
    raise AssertionError(f"p99 lag {seen} ms where a bare write loop is in time")


def skip_where_bare_writes_are_late(limit_ms: float, seen: list[float]) -> None:
    if (bare := bare_lag_p99_ms()) > limit_ms:
        pytest.skip(
            f"machine too busy: a bare write loop is late by {bare:.1f} ms at p99, the engine by {min(seen):.1f}"
        )


@pytest.mark.slow
def test_engine_on_one_core_keeps_96_streams_within_2_ms_of_plan(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path / "kernel.py", (16, 4, 2))
    with engine("--role", "single", "--kernel-file", str(kernel), *TIMING) as started:
        pin(started.process.pid, 0)
        holds(started, started)


@pytest.mark.slow
def test_mock_on_one_core_keeps_96_streams_within_2_ms_of_plan(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(f"base: {{ttft_ms: 50, itl_ms: {TICK_S * 1e3}, tick: true}}\n")
    with engine("--role", "single", "--script", str(script)) as started:
        pin(started.process.pid, 0)
        holds(started, started)


@pytest.mark.slow
def test_decode_on_one_core_keeps_96_streams_within_2_ms_of_plan_behind_the_router(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path / "kernel.py", (16, 4, 2))
    with stack(kernel, TIMING, TIMING) as started:
        pin(started.decode.process.pid, 0)
        holds(started.decode, started.router)
