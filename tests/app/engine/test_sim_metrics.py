from __future__ import annotations

import pytest

from app.engine.sim.metrics import BETWEEN_TOKENS_BOUNDS_S, FIRST_TOKEN_BOUNDS_S, Histogram
from tests.app.engine.running import engine


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


@pytest.mark.parametrize("bounds_s", [BETWEEN_TOKENS_BOUNDS_S, FIRST_TOKEN_BOUNDS_S])
def test_bounds_rise(bounds_s: tuple[float, ...]) -> None:
    assert list(bounds_s) == sorted(set(bounds_s))


def test_a_request_is_counted_once_for_its_first_token_and_once_for_each_gap() -> None:
    with engine("--role", "single", "--selector", "flashinfer", "--time-scale", "100") as single:
        body = {"model": "sim", "prompt": "one two three", "max_tokens": 20, "ignore_eos": True, "stream": True}
        assert single.post("/v1/completions", body)[0] == 200
        assert single.metric("sglang:time_to_first_token_seconds_count") == 1
        assert single.metric("sglang:inter_token_latency_seconds_count") == 19
        assert 0 < single.metric("sglang:inter_token_latency_seconds_sum") < 19
