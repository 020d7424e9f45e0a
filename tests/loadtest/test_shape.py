"""A whole start walked through without a clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.order import StartOrder
from loadtest.plan import WindowRules
from loadtest.shape import Course, Schedule, Seen, advance, begin, close, mark_from_json, mark_json

S = 10**9
SCHEDULE = Schedule((2, 8, 1), settle_ns=2 * S, window_ns=5 * S, fill_timeout_ns=20 * S)


def walk(course: Course, until_s: float, in_flight: int, streaming: int, schedule: Schedule = SCHEDULE) -> Course:
    """Looks once a second up to the given time."""
    now = course.since_ns // S
    while now <= until_s:
        course = advance(schedule, course, Seen(now * S, in_flight, streaming))
        now += 1
    return course


def test_level_is_filled_settled_measured_and_left() -> None:
    course = walk(begin(SCHEDULE, 0), 3, in_flight=2, streaming=1)
    assert course.phase == "fill"
    course = advance(SCHEDULE, course, Seen(4 * S, 2, 2))
    course = walk(course, 6, in_flight=2, streaming=2)
    assert (course.marks[0].filled_ns, course.marks[0].window_start_ns, course.phase) == (4 * S, 6 * S, "window")
    course = walk(course, 11, in_flight=2, streaming=2)
    assert (course.marks[0].window_end_ns, course.phase, course.concurrency) == (11 * S, "fill", 8)


def test_going_down_waits_until_the_surplus_has_ended() -> None:
    course = replace(begin(Schedule((1,), 0, S, 9 * S), 0))
    assert advance(SCHEDULE, course, Seen(S, in_flight=5, streaming=1)).phase == "fill"
    assert advance(SCHEDULE, course, Seen(S, in_flight=1, streaming=1)).phase == "settle"


def test_level_that_does_not_fill_is_void_and_the_next_is_tried() -> None:
    course = walk(begin(SCHEDULE, 0), 20, in_flight=2, streaming=1)
    assert (course.phase, course.concurrency) == ("fill", 8)
    assert "not filled in 20 s (1 of 2 slots" in course.marks[0].reasons[0]


def test_users_are_not_dropped_between_levels() -> None:
    course, levels = begin(SCHEDULE, 0), []
    for second in range(60):
        course = advance(SCHEDULE, course, Seen(second * S, course.concurrency, course.concurrency))
        levels.append(course.concurrency)
    assert [c for i, c in enumerate(levels) if i == 0 or levels[i - 1] != c] == [2, 8, 1, 0]


def test_last_level_drains_until_nothing_is_in_flight() -> None:
    course = walk(begin(Schedule((1,), 0, S, 9 * S), 0), 3, 1, 1, Schedule((1,), 0, S, 9 * S))
    assert (course.phase, course.concurrency) == ("drain", 0)
    assert advance(SCHEDULE, course, Seen(4 * S, 1, 1)).phase == "drain"
    assert advance(SCHEDULE, course, Seen(4 * S, 0, 0)).phase == "done"


def test_drain_ends_by_its_limit() -> None:
    course = Course("drain", 0, begin(SCHEDULE, 0).marks)
    assert advance(SCHEDULE, course, Seen(20 * S, 3, 0)).phase == "done"


@pytest.mark.parametrize("phase", ["fill", "settle", "window"])
def test_start_closed_early_voids_the_level_under_way(phase: str) -> None:
    course = close(Course(phase, 0, begin(SCHEDULE, 0).marks), S, "stopped")  # type: ignore[arg-type]
    assert (course.phase, course.marks[-1].reasons) == ("done", ("stopped",))


def test_start_closed_while_draining_voids_nothing() -> None:
    assert close(Course("drain", 0, begin(SCHEDULE, 0).marks), S, "stopped").marks[-1].reasons == ()


def test_schedule_is_wall_time_of_the_orders_engine_time() -> None:
    rules = WindowRules(settle_s=10, window_s=60, fill_timeout_s=300)
    order = StartOrder(0, 0, "v", "c", (1,), "s", "http://r", Path(), window=rules, time_scale=20)
    assert Schedule.of(order) == Schedule((1,), S // 2, 3 * S, 15 * S)


def test_mark_survives_its_json() -> None:
    mark = replace(begin(SCHEDULE, 7).marks[0], reasons=("a", "b"))
    assert mark_from_json(mark_json(mark)) == mark
