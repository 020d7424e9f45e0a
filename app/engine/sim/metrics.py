"""Counters and gauges under the names SGLang 0.5.17 exports, and Prometheus' text of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

ENGINE_TYPES = {"prefill": "prefill", "decode": "decode", "single": "unified"}
# Bounds of SGLang's own histograms (metrics_collector.py), as far as the simulated engine reaches.
FIRST_TOKEN_BOUNDS_S = (
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    2.0,
    4.0,
    6.0,
    8.0,
    10.0,
    20.0,
    40.0,
    60.0,
    80.0,
    100.0,
    200.0,
    400.0,
)
BETWEEN_TOKENS_BOUNDS_S = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060),
    *(0.080, 0.100, 0.200, 0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0),
)
WAIT_BOUNDS_MS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
LATENCY_BOUNDS_MS = (*WAIT_BOUNDS_MS, 5000.0)
SIZE_BOUNDS_MB = (1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0)
SPEED_BOUNDS_GB_S = (0.1, 0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0)


class Histogram:
    """How often a value fell under each bound; durations are of engine time."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts one value, `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def series(self, name: str, labels: str) -> Iterator[str]:
        """Prometheus' lines: cumulative buckets, sum and count."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum:.12g}"
        yield f"{name}_count{{{labels}}} {total}"


@dataclass(frozen=True, slots=True)
class Transfers:
    """What moving the KV from prefill to decode took, by request, in SGLang's units: a MB is 2**20 bytes, a GB 1024 MB.

    Prefill observes all five when decode has the KV, decode the two waits when it asks for the KV.
    """

    latency_ms: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_MS))
    total_mb: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS_MB))
    speed_gb_s: Histogram = field(default_factory=lambda: Histogram(SPEED_BOUNDS_GB_S))
    bootstrap_ms: Histogram = field(default_factory=lambda: Histogram(WAIT_BOUNDS_MS))
    alloc_ms: Histogram = field(default_factory=lambda: Histogram(WAIT_BOUNDS_MS))

    def moved(self, latency_s: float, total_bytes: float) -> None:
        """A request's KV has arrived; one that took no time is not observed, as in SGLang."""
        if latency_s > 0:
            total_mb = total_bytes / 2**20
            self.latency_ms.observe(latency_s * 1e3)
            self.total_mb.observe(total_mb)
            self.speed_gb_s.observe(total_mb / 1024 / latency_s)

    def waited(self, bootstrap_s: float, alloc_s: float) -> None:
        """A request waited so long for the other side, then for memory."""
        self.bootstrap_ms.observe(bootstrap_s * 1e3)
        self.alloc_ms.observe(alloc_s * 1e3)


@dataclass(slots=True)
class Counters:
    """What only grows. As in SGLang, a request's tokens count when it ends; realtime_* counts every step."""

    num_requests: int = 0
    num_aborted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    cached_tokens: int = 0
    realtime_decode: int = 0
    realtime_prefill_compute: int = 0
    realtime_prefill_cache: int = 0
    retracted_requests: int = 0
    retracted_output_tokens: int = 0
    bootstrap_failed: int = 0
    transfer_failed: int = 0
    first_token: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_BOUNDS_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(BETWEEN_TOKENS_BOUNDS_S))
    transfers: Transfers = field(default_factory=Transfers)


@dataclass(frozen=True, slots=True)
class Gauges:
    """State of a moment. cache_hit_rate: of prompt tokens since the last flush; gen_throughput: in engine time."""

    running: int = 0
    queued: int = 0
    bootstrapping: int = 0
    transferring: int = 0
    preallocating: int = 0
    inflight: int = 0
    retracted: int = 0
    used_tokens: int = 0
    evictable_tokens: int = 0
    capacity_tokens: int = 1
    cache_hit_rate: float = 0.0
    gen_throughput: float = 0.0

    @property
    def token_usage(self) -> float:
        """Share of KV that running requests hold, 0..1."""
        return self.used_tokens / max(1, self.capacity_tokens)


def exposition(role: str, model: str, counters: Counters, gauges: Gauges, extra: Mapping[str, float]) -> str:
    """Prometheus text; `extra` are the lab's own decode_ab_* series."""
    base = f'engine_type="{ENGINE_TYPES[role]}",model_name="{model}"'
    ranked = f'{base},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    lines = ["# SIMULATED engine: no GPU ran for these numbers"]
    for name, value in _gauge_values(gauges).items():
        lines += [f"# TYPE sglang:{name} gauge", f"sglang:{name}{{{ranked}}} {value:.12g}"]
    for name, series in _counter_values(counters, base, ranked).items():
        lines.append(f"# TYPE sglang:{name} counter")
        lines += [f"sglang:{name}{{{labels}}} {total}" for labels, total in series]
    histograms = (*_histograms(counters, base), *_transfers(role, counters.transfers, ranked))
    for name, histogram, labels in histograms:
        lines += [f"# TYPE sglang:{name} histogram", *histogram.series(f"sglang:{name}", labels)]
    for name, value in extra.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE decode_ab_{name} {kind}", f"decode_ab_{name}{{{base}}} {value:.12g}"]
    return "\n".join(lines) + "\n"


def _gauge_values(g: Gauges) -> dict[str, float]:
    return {
        "num_running_reqs": g.running,
        "num_queue_reqs": g.queued,
        "num_used_tokens": g.used_tokens,
        "token_usage": g.token_usage,
        "full_token_usage": g.token_usage,
        "kv_used_tokens": g.used_tokens,
        "kv_evictable_tokens": g.evictable_tokens,
        "kv_available_tokens": g.capacity_tokens - g.used_tokens - g.evictable_tokens,
        "max_total_num_tokens": g.capacity_tokens,
        "cache_hit_rate": g.cache_hit_rate,
        "gen_throughput": g.gen_throughput,
        "num_retracted_reqs": g.retracted,
        "num_prefill_bootstrap_queue_reqs": g.bootstrapping,
        "num_prefill_inflight_queue_reqs": g.inflight,
        "num_decode_prealloc_queue_reqs": g.preallocating,
        "num_decode_transfer_queue_reqs": g.transferring,
    }


def _histograms(c: Counters, base: str) -> Iterator[tuple[str, Histogram, str]]:
    yield "time_to_first_token_seconds", c.first_token, f'{base},is_streaming="true"'
    yield "inter_token_latency_seconds", c.between_tokens, base


def _transfers(role: str, t: Transfers, ranked: str) -> Iterator[tuple[str, Histogram, str]]:
    if role == "prefill":
        yield "kv_transfer_latency_ms", t.latency_ms, ranked
        yield "kv_transfer_total_mb", t.total_mb, ranked
        yield "kv_transfer_speed_gb_s", t.speed_gb_s, ranked
    if role != "single":
        yield "kv_transfer_bootstrap_ms", t.bootstrap_ms, ranked
        yield "kv_transfer_alloc_ms", t.alloc_ms, ranked


def _counter_values(c: Counters, base: str, ranked: str) -> dict[str, list[tuple[str, int]]]:
    streaming = f'{base},is_streaming="true"'
    modes = {
        "decode": c.realtime_decode,
        "prefill_compute": c.realtime_prefill_compute,
        "prefill_cache": c.realtime_prefill_cache,
    }
    return {
        "prompt_tokens_total": [(streaming, c.prompt_tokens)],
        "generation_tokens_total": [(streaming, c.generation_tokens)],
        "num_requests_total": [(streaming, c.num_requests)],
        "num_aborted_requests_total": [(base, c.num_aborted)],
        "cached_tokens_total": [(f'{base},cache_source="total"', c.cached_tokens)],
        "realtime_tokens_total": [(f'{ranked},mode="{mode}"', count) for mode, count in modes.items()],
        "num_retracted_requests_total": [(ranked, c.retracted_requests)],
        "num_retracted_output_tokens_total": [(ranked, c.retracted_output_tokens)],
        "num_bootstrap_failed_reqs_total": [(ranked, c.bootstrap_failed)],
        "num_transfer_failed_reqs_total": [(ranked, c.transfer_failed)],
    }
