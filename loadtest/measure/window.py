"""The steady window of each level out of raw rows: rates, latencies and the reasons why a cell may not count.

Definitions: t0 request handed to the kernel (in an open loop: when it was to be), t1 and tn first and last event with
visible text, n tokens the server reports, k1 those of the first event. TTFT = t1 - t0, TPOT = (tn - t1)/(n - k1),
E2E = tn - t0, ITL = gap between events when each carries one token. Output rate = tokens that arrived inside the window
over all streams / window, an event's tokens spread over the gap before it. In a window of decode alone no request ends:
TPOT is the time between a stream's events inside the window / their tokens. Wall time becomes engine time here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest.cells import Cell
from loadtest.client.rows import Rows
from loadtest.measure.events import Events, first_and_last
from loadtest.measure.goodput import goodput
from loadtest.measure.gpu import check_gpus, gpu_from_json
from loadtest.measure.inside import Inside, rows_in
from loadtest.measure.reconcile import check_guards, check_rows, check_server, decode_samples
from loadtest.measure.server import sample_from_json
from loadtest.measure.steady import drift, mser
from loadtest.plan import Plan, Start
from loadtest.shape import Mark, mark_from_json

BINS = 60


def measure(start: Start, rows: Rows, load: Mapping[str, Any], plan: Plan) -> list[Cell]:
    """A cell for each level of a start's record, in visiting order; a level without a window is a void cell."""
    events = Events.of(rows)
    marks = [mark_from_json(level) for level in load["levels"]]
    guards = [level.get("guards", {}) for level in load["levels"]]
    return [_cell(start, rows, events, load, plan, mark, guard) for mark, guard in zip(marks, guards, strict=True)]


def steady_window(events: Events, start: int, end: int, plan: Plan) -> tuple[int, int, tuple[str, ...]]:
    """A window, its beginning cut off by MSER when it drifts, and why it is not steady if it still does."""
    # Bins of a whole number of engine seconds would be too few in a short window; a fixed count suits any time scale.
    edges = np.linspace(start, end, BINS + 1).astype(np.int64)
    series = events.series(edges)
    rules = plan.window
    if not drift(series).matters(rules.slope_alpha, plan.delta):
        return start, end, ()
    cut = mser(series)
    found = drift(series[cut:])
    if found.matters(rules.slope_alpha, plan.delta):
        return start, end, (f"not steady, output drifts by {found.relative:+.1%} over the window (p {found.p:.2g})",)
    return int(edges[cut]), end, ()


def _last_common_event(rows: Rows, events: Events, start: int, end: int) -> int:
    """When the first stream that was cut fell silent: what came after its last event before the cut, nobody saw."""
    inside = (events.at_ns >= start) & (events.at_ns < end) & (rows.ended_ns >= end)[events.request]
    last = np.full(len(rows), -1, np.int64)
    np.maximum.at(last, events.request[inside], events.at_ns[inside])
    return int(last[last > start].min(initial=end))


def _cell(
    start: Start, rows: Rows, events: Events, load: Mapping[str, Any], plan: Plan, mark: Mark, guard: Mapping[str, Any]
) -> Cell:
    if not mark.window_end_ns:
        return _void(start, mark, (*mark.reasons, "no complete window"))
    begin, end = mark.window_start_ns, mark.window_end_ns
    if plan.window.decode_only:
        end = _last_common_event(rows, events, begin, end)
    begin, end, unsteady = steady_window(events, begin, end, plan)
    scale = float(load["time_scale"])
    window_s = (end - begin) / 1e9 * scale
    tokens = events.credit(begin, end)
    samples = [sample_from_json(s) for s in load["server"]["samples"]]
    inside = rows_in(rows, begin, end)
    running = decode_samples(samples, begin, end)
    closed = load.get("workload", {}).get("rate_per_s") is None
    reasons = (
        *mark.reasons,
        *unsteady,
        *check_rows(rows, inside, mark, begin, end, plan, closed),
        *check_guards(guard, plan),
        *check_server(samples, rows, events.credit, mark, begin, end),
        *check_gpus([gpu_from_json(s) for s in load.get("gpu", ())], begin, end),
    )
    return Cell(
        block=start.block,
        start=start.index,
        variant=start.variant,
        concurrency=mark.concurrency,
        tokens_per_s=tokens / window_s,
        window_s=window_s,
        tokens=round(tokens),
        requests=int(inside.ended.sum()),
        decode_batch=float(np.mean(running)) if len(running) else np.nan,
        failures=int(inside.failed.sum()),
        short_outputs=int(inside.short.sum()),
        reasons=tuple(dict.fromkeys(reasons)),
        goodput_per_s=goodput(rows, begin, end, scale, plan.objectives).per_s if plan.objectives else np.nan,
        **latencies(rows, events, inside, begin, end, scale, plan.window.decode_only),
    )


def latencies(
    rows: Rows, events: Events, inside: Inside, begin: int, end: int, scale: float, decode_only: bool = False
) -> dict[str, float]:
    """Medians and tails in engine milliseconds; NaN where undefined."""
    t1, tn = first_and_last(rows)
    ms = scale / 1e6
    ttft = (t1 - rows.scheduled_ns)[inside.begun] * ms
    whole = inside.ended & ~inside.failed & ~inside.short & (tn > 0)
    e2e = (tn - rows.scheduled_ns)[whole] * ms
    tokens = np.bincount(events.request, events.tokens, len(rows))
    k1 = np.bincount(events.request[events.first], events.tokens[events.first], len(rows))
    rest = whole & (tokens > k1)
    tpot = ((tn - t1)[rest] / (tokens - k1)[rest]) * ms
    gaps = ~events.first & (events.at_ns >= begin) & (events.at_ns < end)
    if decode_only:
        tpot = events.paces_ns(begin, end) * ms
    one_each = bool(np.all(events.tokens[gaps] == 1))
    itl = (events.at_ns - events.before_ns)[gaps] * ms if one_each else np.zeros(0)
    return {
        "ttft_p50_ms": _percentile(ttft, 50),
        "ttft_p95_ms": _percentile(ttft, 95),
        "tpot_p50_ms": _percentile(tpot, 50),
        "itl_p50_ms": _percentile(itl, 50),
        "itl_p99_ms": _percentile(itl, 99),
        "e2e_p50_ms": _percentile(e2e, 50),
    }


def _percentile(values: npt.NDArray[Any], q: float) -> float:
    return float(np.percentile(values, q)) if len(values) else float("nan")


def _void(start: Start, mark: Mark, reasons: tuple[str, ...]) -> Cell:
    names = ("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "itl_p50_ms", "itl_p99_ms", "e2e_p50_ms", "decode_batch")
    return Cell(
        block=start.block,
        start=start.index,
        variant=start.variant,
        concurrency=mark.concurrency,
        tokens_per_s=float("nan"),
        window_s=0.0,
        tokens=0,
        requests=0,
        failures=0,
        short_outputs=0,
        reasons=reasons,
        **dict.fromkeys(names, float("nan")),
    )
