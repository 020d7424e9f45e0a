from __future__ import annotations

import pytest

from app.engine.sim.metrics import (
    BETWEEN_TOKENS_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    LATENCY_BOUNDS_MS,
    SIZE_BOUNDS_MB,
    SPEED_BOUNDS_GB_S,
    Counters,
    Gauges,
    Histogram,
    exposition,
)
from loadtest.measure.server import TRANSFER_METRICS, read_metrics
from tests.app.engine.running import engine

RISING = (BETWEEN_TOKENS_BOUNDS_S, FIRST_TOKEN_BOUNDS_S, LATENCY_BOUNDS_MS, SIZE_BOUNDS_MB, SPEED_BOUNDS_GB_S)


def test_a_histogram_counts_up_to_each_bound_and_everything_at_the_end() -> None:
    histogram = Histogram((0.1, 0.2))
    for duration_s in (0.1, 0.15, 0.3):
        histogram.observe(duration_s)
    histogram.observe(0.2, times=2)
    assert list(histogram.series("t", 'a="b"')) == [
        't_bucket{a="b",le="0.1"} 1',
        't_bucket{a="b",le="0.2"} 4',
        't_bucket{a="b",le="+Inf"} 5',
        't_sum{a="b"} 0.95',
        't_count{a="b"} 5',
    ]


@pytest.mark.parametrize("bounds", RISING)
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def transfer_values(role: str) -> dict[str, float]:
    counters = Counters()
    counters.transfers.moved(0.5, 2**30)
    counters.transfers.moved(0.0, 2**30)
    counters.transfers.waited(0.25, 0.125)
    page = exposition(role, "m", counters, Gauges(), {}).encode()
    return {name: value for name, value in read_metrics(page).items() if name in TRANSFER_METRICS}


def test_a_transfer_is_read_from_prefills_page_in_ms_and_mb_and_one_without_time_is_not_there() -> None:
    sums = {"latency_ms": 500, "total_mb": 1024, "bootstrap_ms": 250, "alloc_ms": 125}
    assert transfer_values("prefill") == {
        f"kv_transfer_{name}_{part}": value
        for name, total in sums.items()
        for part, value in (("sum", total), ("count", 1))
    }


def test_decode_tells_of_its_waits_alone_and_a_single_server_of_no_transfer() -> None:
    waits = [name for name in TRANSFER_METRICS if "bootstrap" in name or "alloc" in name]
    assert list(transfer_values("decode")) == waits
    assert transfer_values("single") == {}


def test_a_request_is_counted_once_for_its_first_token_and_once_for_each_gap() -> None:
    with engine("--role", "single", "--selector", "flashinfer", "--time-scale", "100") as single:
        body = {"model": "sim", "prompt": "one two three", "max_tokens": 20, "ignore_eos": True, "stream": True}
        assert single.post("/v1/completions", body)[0] == 200
        assert single.metric("sglang:time_to_first_token_seconds_count") == 1
        assert single.metric("sglang:inter_token_latency_seconds_count") == 19
        assert 0 < single.metric("sglang:inter_token_latency_seconds_sum") < 19
