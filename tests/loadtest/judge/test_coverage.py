from __future__ import annotations

from dataclasses import replace

import pytest

from loadtest.cells import Cell
from loadtest.judge.coverage import short_windows
from loadtest.judge.verdict import judge
from loadtest.plan import WindowRules
from tests.loadtest.judge.test_verdict import FACTS, NONE, campaign, plan_of


def held(**requests: int) -> list[Cell]:
    """Cells of a campaign whose windows hold so many requests at each named concurrency, plenty at the others."""
    by = {int(name[1:]): count for name, count in requests.items()}
    return [replace(c, requests=by.get(c.concurrency, 10 * c.concurrency)) for c in campaign(NONE)]


def test_windows_that_hold_each_slot_twice_are_not_spoken_of() -> None:
    assert [*short_windows(held(c96=192))] == []


def test_concurrencies_with_short_windows_are_named_with_what_they_hold() -> None:
    (told,) = short_windows(held(c64=64, c96=77))
    assert told.startswith("windows at C=64,96 hold 0.8 to 1.0 requests of each slot")


def test_void_windows_are_left_out() -> None:
    assert [*short_windows([replace(c, reasons=("late",)) for c in held(c96=1)])] == []


def test_windows_of_decode_alone_hold_no_request_and_need_none() -> None:
    plan = replace(plan_of(), window=WindowRules(decode_only=True))
    assert judge(plan, [replace(c, requests=0) for c in held()], FACTS).notes == ()


@pytest.mark.parametrize(("requests", "notes"), [(96, 1), (960, 0)])
def test_a_verdict_notes_short_windows(requests: int, notes: int) -> None:
    assert len(judge(plan_of(), held(c96=requests), FACTS).notes) == notes
