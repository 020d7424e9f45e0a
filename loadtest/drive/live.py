"""Figures while a start runs, for the eye only: the record is read from the rows afterwards."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadtest.client.connection import Exchange
from loadtest.client.recorder import Sent
from loadtest.drive.feed import Look
from loadtest.order import StartOrder
from loadtest.shape import Course

TRACE_POINTS = 600
# The last so many requests of a level give its medians.
RECENT = 200


@dataclass(slots=True)
class LevelFigures:
    """What was seen so far at one concurrency; times in engine milliseconds."""

    requests: int = 0
    failures: int = 0
    ttft_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    tpot_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    e2e_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    gap_p99_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    tokens_per_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    ended_ns: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))


class Live:
    """Figures per level and a trace of output rate, lag and requests in flight, one point a second."""

    def __init__(self, order: StartOrder) -> None:
        self._order = order
        self._levels: dict[int, LevelFigures] = {c: LevelFigures() for c in order.concurrencies}
        self._trace: deque[dict[str, Any]] = deque(maxlen=TRACE_POINTS)
        self._reads_done = 0
        self._last = (time.monotonic_ns(), 0)
        self._tokens_per_read = 1.0

    def add(self, sent: Sent, look: Look) -> None:
        """Takes a finished request."""
        stamps = sent.exchange.stamps
        self._reads_done += len(stamps)
        level = self._levels[sent.lease.concurrency]
        level.requests += 1
        level.ended_ns.append(sent.exchange.ended_ns)
        if look.error or look.first < 0:
            level.failures += 1
            return
        scale = self._order.time_scale
        level.ttft_ms.append(look.ttft_ms * scale)
        level.e2e_ms.append(look.e2e_ms * scale)
        if look.tpot_ms == look.tpot_ms:
            level.tpot_ms.append(look.tpot_ms * scale)
        if look.last > look.first:
            gaps = np.diff(np.array(stamps[look.first : look.last + 1]))
            level.gap_p99_ms.append(float(np.percentile(gaps, 99)) / 1e6 * scale)
        per_read = sent.requested_tokens / max(1, len(stamps) - look.first)
        self._tokens_per_read = 0.9 * self._tokens_per_read + 0.1 * per_read

    def tick(self, in_flight: int, live: Iterable[Exchange], course: Course, lag_ms: float) -> None:
        """Adds a point to the trace; tokens are estimated from reads by the ratio of finished requests."""
        now = time.monotonic_ns()
        reads = self._reads_done + sum(len(e.stamps) for e in live)
        then, before = self._last
        self._last = (now, reads)
        seconds = (now - then) / 1e9 * self._order.time_scale
        rate = max(0.0, (reads - before) * self._tokens_per_read / seconds) if seconds > 0 else 0.0
        if course.phase == "window" and course.concurrency in self._levels:
            self._levels[course.concurrency].tokens_per_s.append(rate)
        point = {"t": now / 1e9, "tokens_per_s": round(rate, 1), "in_flight": in_flight, "lag_ms": round(lag_ms, 2)}
        self._trace.append(point | {"concurrency": course.concurrency, "phase": course.phase})

    def levels(self, course: Course | None) -> list[dict[str, Any]]:
        """A row for each level in visiting order."""
        return [self._row(c, figures, course) for c, figures in self._levels.items()]

    def trace(self) -> list[dict[str, Any]]:
        """The trace, oldest point first."""
        return list(self._trace)

    def _row(self, concurrency: int, figures: LevelFigures, course: Course | None) -> dict[str, Any]:
        return {
            "name": f"C={concurrency}",
            "concurrency": concurrency,
            "state": state_of(concurrency, course, figures.ended_ns if self._order.window.decode_only else ()),
            "tokens_per_s": _middle(figures.tokens_per_s),
            "ttft_ms": _middle(figures.ttft_ms),
            "tpot_ms": _middle(figures.tpot_ms),
            "itl_p99_ms": _middle(figures.gap_p99_ms),
            "e2e_ms": _middle(figures.e2e_ms),
            "requests": figures.requests,
            "failures": figures.failures,
        }


def state_of(concurrency: int, course: Course | None, forbidden_ns: Iterable[int] = ()) -> str:
    """A level's state in one word: waiting, fill, settle, window, measured or void.

    forbidden_ns: when answers ended of which none may end inside a window.
    """
    marks = {m.concurrency: m for m in course.marks} if course else {}
    mark = marks.get(concurrency)
    if course is None or mark is None:
        return "waiting"
    ends_ns = mark.window_end_ns or time.monotonic_ns()
    if mark.reasons or (mark.window_start_ns and any(mark.window_start_ns <= at < ends_ns for at in forbidden_ns)):
        return "void"
    if mark is course.marks[-1] and course.phase in ("fill", "settle", "window"):
        return course.phase
    return "measured"


def _middle(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(float(np.median(found)), 2) if found else None
