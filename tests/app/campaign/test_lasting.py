from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.lasting import lasting_reasons, remedy
from app.campaign.runs import RunFolder
from app.records import write_json
from loadtest.cells import Cell, void_cells
from loadtest.plan import Lengths, Plan, WindowRules

EMPTY = "no request began or ended in the window"
PLAN = Plan(3, {"v1": "pinned"}, (1, 8), 4, lengths=Lengths(64, 200), window=WindowRules(window_s=2.0))


def kept(folder: RunFolder, *attempts: list[str]) -> RunFolder:
    for number, void in enumerate(attempts, 1):
        folder.set_aside(0, "void")
        record = {"schema": 1, "block": 0, "attempt": number, "void": void, "finished_at": ""}
        write_json(folder.block(0) / "block.json", record)
    return folder


@pytest.mark.parametrize(
    ("attempts", "lasting"),
    [
        ([[f"start-00-v1 C=1: {EMPTY}"], [f"start-01-a C=1: {EMPTY}", "start-00-v1 C=8: x"]], {f"C=1: {EMPTY}"}),
        ([["start-00-v1 C=8: 7.5 at C=8"], ["start-03-b C=8: 7 at C=8"]], {"C=8: # at C=8"}),
        ([["start-00-v1: decode ended"], ["start-02-v1: decode ended"]], {"decode ended"}),
        ([[f"start-00-v1 C=1: {EMPTY}"], [f"start-00-v1 C=8: {EMPTY}"]], set()),
        ([["start-00-v1 C=1: client late, p99 30 ms"], ["start-00-v1 C=1: client late, p99 31 ms"]], set()),
        ([[f"start-00-v1 C=1: {EMPTY}"], []], set()),
        ([], set()),
    ],
)  # fmt: skip
def test_a_reason_lasts_when_every_attempt_had_it_at_that_level_and_no_busy_machine_is_behind_it(
    tmp_path: Path, attempts: list[list[str]], lasting: set[str]
) -> None:
    assert lasting_reasons(kept(RunFolder(tmp_path), *attempts), 0) == lasting


def cell(step_ms: float) -> Cell:
    return replace(void_cells(PLAN.starts(0)[0], ["x"])[0], concurrency=1, itl_p50_ms=step_ms)


@pytest.mark.parametrize(
    ("step_ms", "says"),
    [(25.0, "a request takes 5 s (200 tokens, 25 ms each), --window is 2 s"), (math.nan, "--window 2 is too short")],
)
def test_a_window_shorter_than_a_request_is_told_by_the_step_time_that_was_measured(step_ms: float, says: str) -> None:
    assert remedy([f"start-00-v1 C=1: {EMPTY}"], PLAN, [cell(step_ms)]).startswith(says)


def test_a_window_that_outlasts_a_request_is_not_blamed() -> None:
    assert remedy([f"start-00-v1 C=1: {EMPTY}"], PLAN, [cell(5.0)]) == ""


@pytest.mark.parametrize(("reason", "option"), [("not steady, output drifts", "--settle"), ("GPU throttled", "")])
def test_the_option_that_mends_a_reason_is_named_where_there_is_one(reason: str, option: str) -> None:
    said = remedy([f"C=8: {reason}"], PLAN, [])
    assert option in said
    assert bool(said) == bool(option)
