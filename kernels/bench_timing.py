"""Timing on a GPU: CUDA-graph replays over input sets used in turn, and the read bandwidth they are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import torch

from kernels.layout import HEAD_DIM, TOKEN_BYTES

# Twice the second-level cache of an H200: what a replay leaves there is gone before it comes round again.
ROTATED_BYTES = 130_000_000
MAX_SETS = 192

Input = TypeVar("Input")


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one call: the median, the fastest and the slowest of the replays."""

    median_us: float
    low_us: float
    high_us: float


def set_count(batch: int, tokens: int) -> int:
    """How many input sets are needed so that one round over them exceeds the cache."""
    return max(4, min(MAX_SETS, -(-ROTATED_BYTES // (batch * tokens * TOKEN_BYTES))))


def bytes_read(batch: int, heads: int, live_tokens: int) -> int:
    """Fewest bytes one call moves: each live token once (584 B), its index, q in and out in bf16, LSE in fp32."""
    return live_tokens * (TOKEN_BYTES + 4) + batch * heads * (2 * 2 * HEAD_DIM + 4)


def replay_us(call: Callable[[Input], object], sets: Sequence[Input], replays: int = 9) -> Timing:
    """Time of one call out of a captured round over all sets."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for inputs in sets[:2]:
            call(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kept = [call(inputs) for inputs in sets]
    graph.replay()
    times = sorted(_replay_ms(graph) * 1000 / len(sets) for _ in range(replays))
    del kept
    return Timing(median(times), times[0], times[-1])


def read_bandwidth(size: int = 1 << 30) -> float:
    """Bytes per second at which a large fp32 sum reads memory on this device."""
    data = torch.zeros(size // 4, device="cuda")
    return size / (replay_us(torch.sum, [data] * 4).median_us * 1e-6)


def _replay_ms(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))
