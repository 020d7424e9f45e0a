"""The course of a start: each concurrency is filled, settled and measured in turn, without emptying in between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from loadtest.order import StartOrder

Phase = Literal["fill", "settle", "window", "drain", "done"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The levels in visiting order, and wall durations in nanoseconds."""

    concurrencies: tuple[int, ...]
    settle_ns: int
    window_ns: int
    fill_timeout_ns: int

    @classmethod
    def of(cls, order: StartOrder) -> Schedule:
        """The schedule of an order: its engine seconds turned into wall time."""
        rules = order.window
        settle, window, fill = (
            int(order.wall_s(s) * 1e9) for s in (rules.settle_s, rules.window_s, rules.fill_timeout_s)
        )
        return cls(order.concurrencies, settle, window, fill)


@dataclass(frozen=True, slots=True)
class Mark:
    """What happened at one level, in monotonic nanoseconds (0 = not reached), and why it cannot count."""

    concurrency: int
    entered_ns: int
    filled_ns: int = 0
    window_start_ns: int = 0
    window_end_ns: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the driver sees: requests in flight, and how many slots of this level have received output."""

    now_ns: int
    in_flight: int
    streaming: int


@dataclass(frozen=True, slots=True)
class Course:
    """Where a start stands: phase, when it began, and the mark of every level entered so far."""

    phase: Phase
    since_ns: int
    marks: tuple[Mark, ...]

    @property
    def concurrency(self) -> int:
        """The present level; 0 while draining and after."""
        return self.marks[-1].concurrency if self.phase in ("fill", "settle", "window") else 0


def begin(schedule: Schedule, now_ns: int) -> Course:
    """The course at its first level."""
    return Course("fill", now_ns, (Mark(schedule.concurrencies[0], now_ns),))


def advance(schedule: Schedule, course: Course, seen: Seen) -> Course:
    """The course one look later; a pure function, so a whole start can be walked through in a test."""
    mark, now, waited = course.marks[-1], seen.now_ns, seen.now_ns - course.since_ns
    if course.phase == "fill":
        if seen.in_flight <= mark.concurrency <= seen.streaming:
            return _enter(course, "settle", replace(mark, filled_ns=now), now)
        if waited >= schedule.fill_timeout_ns:
            reason = f"not filled in {waited / 1e9:g} s ({seen.streaming} of {mark.concurrency} slots had output)"
            return _next(schedule, course, replace(mark, reasons=(*mark.reasons, reason)), now)
    elif course.phase == "settle" and waited >= schedule.settle_ns:
        return _enter(course, "window", replace(mark, window_start_ns=now), now)
    elif course.phase == "window" and waited >= schedule.window_ns:
        return _next(schedule, course, replace(mark, window_end_ns=now), now)
    elif course.phase == "drain" and (seen.in_flight == 0 or waited >= schedule.fill_timeout_ns):
        return replace(course, phase="done", since_ns=now)
    return course


def close(course: Course, now_ns: int, reason: str) -> Course:
    """Ends a course early: the level under way is void for the given reason."""
    if course.phase in ("drain", "done"):
        return replace(course, phase="done", since_ns=now_ns)
    return _enter(course, "done", replace(course.marks[-1], reasons=(*course.marks[-1].reasons, reason)), now_ns)


def mark_json(mark: Mark) -> dict[str, Any]:
    """A level of load.json."""
    return {name: getattr(mark, name) for name in Mark.__slots__} | {"reasons": list(mark.reasons)}


def mark_from_json(data: dict[str, Any]) -> Mark:
    """The mark a level of load.json holds."""
    values = {name: data[name] for name in Mark.__slots__}
    return Mark(**values | {"reasons": tuple(data["reasons"])})


def _enter(course: Course, phase: Phase, mark: Mark, now_ns: int) -> Course:
    return Course(phase, now_ns, (*course.marks[:-1], mark))


def _next(schedule: Schedule, course: Course, mark: Mark, now_ns: int) -> Course:
    marks = (*course.marks[:-1], mark)
    if len(marks) == len(schedule.concurrencies):
        return Course("drain", now_ns, marks)
    return Course("fill", now_ns, (*marks, Mark(schedule.concurrencies[len(marks)], now_ns)))
