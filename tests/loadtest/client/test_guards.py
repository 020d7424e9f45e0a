"""A client that is starved knows it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from loadtest.client.guards import LoopMeter, health_json

STARVED = """
import json, sys, time, gevent
from loadtest.client.streams import StreamClient
from loadtest.client.guards import health_json
client = StreamClient("http://127.0.0.1:9")
client.start()
start = time.monotonic_ns()
{work}
print(json.dumps(health_json(client.meter.health(start, time.monotonic_ns()))))
client.close()
"""
IDLE = "gevent.sleep(2.2)"
# Sorting holds the interpreter for its whole length: what a busy page or a parse in the wrong place would do.
HOLD = "data = list(range(6_000_000))[::-1]\nfor _ in range(12): sorted(data, key=int)"


def health_of(work: str) -> dict[str, float]:
    argv = [sys.executable, "-c", STARVED.format(work=work)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3], timeout=60)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def test_starved_client_exceeds_the_plans_limit_and_an_idle_one_does_less() -> None:
    idle, starved = health_of(IDLE), health_of(HOLD)
    assert starved["loop_lag_p99_ms"] > 20
    assert idle["loop_lag_p50_ms"] < starved["loop_lag_p50_ms"]
    assert starved["cpu_share"] > idle["cpu_share"]


def test_health_of_an_interval_leaves_out_what_lies_beside_it() -> None:
    meter = LoopMeter()
    for at, lag in ((1, 10), (2, 20), (3, 9000)):
        meter.at_ns.append(at)
        meter.lag_ns.append(lag * 1_000_000)
    assert meter.health(1, 2).loop_lag_max_ms == 20


def test_nothing_measured_is_null_not_zero() -> None:
    assert set(health_json(LoopMeter().health(0, time.monotonic_ns())).values()) == {None}


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_cpu_share_is_of_one_core(share: float) -> None:
    meter = LoopMeter()
    for second in range(5):
        meter.cpu_at_ns.append(second * 10**9)
        meter.process_ns.append(int(second * share * 1e9))
        meter.thread_ns.append(int(second * share * 5e8))
    found = meter.health(0, 4 * 10**9)
    assert found.cpu_share == pytest.approx(share)
    assert found.reader_cpu_share == pytest.approx(share / 2)
    assert np.isnan(found.loop_lag_p99_ms)
