"""Valid cells of a campaign put together: one line per variant and concurrency."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from loadtest.cells import Cell

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """A variant at one concurrency over its valid starts, in engine time.

    tokens_per_s is the geometric mean of the starts, so that ratios agree with the mean of log differences; latencies
    are medians over starts of each start's own percentile. starts holds (block, start, tokens_per_s).
    """

    variant: str
    concurrency: int
    tokens_per_s: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    e2e_p50_ms: float
    decode_batch: float
    goodput_per_s: float
    requests: int
    failures: int
    short_outputs: int
    starts: tuple[tuple[int, int, float], ...]


def summarise(cells: Iterable[Cell], void: Container[tuple[str, int]]) -> Mapping[Key, Measured]:
    """Groups valid cells by (variant, concurrency), leaving out the (variant, block) pairs that are void."""
    groups = dict[Key, list[Cell]]()
    for cell in cells:
        if cell.valid and (cell.variant, cell.block) not in void and cell.tokens_per_s > 0:
            groups.setdefault((cell.variant, cell.concurrency), []).append(cell)
    return {key: _measured(group) for key, group in groups.items()}


def _measured(cells: list[Cell]) -> Measured:
    first = cells[0]
    return Measured(
        variant=first.variant,
        concurrency=first.concurrency,
        tokens_per_s=math.exp(fmean(math.log(c.tokens_per_s) for c in cells)),
        ttft_p50_ms=_median(c.ttft_p50_ms for c in cells),
        ttft_p95_ms=_median(c.ttft_p95_ms for c in cells),
        tpot_p50_ms=_median(c.tpot_p50_ms for c in cells),
        itl_p50_ms=_median(c.itl_p50_ms for c in cells),
        itl_p99_ms=_median(c.itl_p99_ms for c in cells),
        e2e_p50_ms=_median(c.e2e_p50_ms for c in cells),
        decode_batch=_median(c.decode_batch for c in cells),
        goodput_per_s=_median(c.goodput_per_s for c in cells),
        requests=sum(c.requests for c in cells),
        failures=sum(c.failures for c in cells),
        short_outputs=sum(c.short_outputs for c in cells),
        starts=tuple((c.block, c.start, c.tokens_per_s) for c in cells),
    )


def _median(values: Iterable[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return median(known) if known else math.nan
