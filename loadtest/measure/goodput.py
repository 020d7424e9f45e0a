"""Goodput: requests a second that met every objective, failures counted as misses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadtest.client.rows import Rows
from loadtest.measure.events import Events, first_and_last
from loadtest.plan import Objectives


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that ended in the window, those that met every objective, and the latter per second."""

    sent: int
    met: int
    per_s: float


def goodput(rows: Rows, begin_ns: int, end_ns: int, time_scale: float, objectives: Objectives) -> Goodput:
    """Of all requests that ended inside an interval; one without a figure for a limit misses it."""
    ended = (rows.ended_ns >= begin_ns) & (rows.ended_ns < end_ns)
    counted = ended & np.array([kind != "cut" for kind in rows.error_kind], bool)
    met = counted & np.array([kind == "" for kind in rows.error_kind], bool)
    for limit, values in zip(
        (objectives.ttft_ms, objectives.tpot_ms, objectives.e2e_ms), _times(rows, time_scale), strict=True
    ):
        if limit is not None:
            met &= values <= limit
    seconds = (end_ns - begin_ns) / 1e9 * time_scale
    return Goodput(int(counted.sum()), int(met.sum()), float(met.sum() / seconds))


def _times(rows: Rows, time_scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    t1, tn = first_and_last(rows)
    events = Events.of(rows)
    tokens = np.bincount(events.request, events.tokens, len(rows))
    k1 = np.bincount(events.request[events.first], events.tokens[events.first], len(rows))
    ms = time_scale / 1e6
    has = tn > 0
    ttft = np.where(has, (t1 - rows.scheduled_ns) * ms, np.inf)
    e2e = np.where(has, (tn - rows.scheduled_ns) * ms, np.inf)
    tpot = np.where(tokens > k1, (tn - t1) * ms / np.maximum(tokens - k1, 1), np.where(has, 0.0, np.inf))
    return ttft, tpot, e2e
