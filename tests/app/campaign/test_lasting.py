from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.lasting import lasting_reasons, remedy, too_short_answers
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
    assert lasting_reasons(kept(RunFolder(tmp_path), *attempts), 0).keys() == lasting


def test_a_lasting_reason_is_told_with_the_figures_of_the_last_attempt(tmp_path: Path) -> None:
    folder = kept(RunFolder(tmp_path), ["start-00-v1 C=8: 7.5 of 1,100"], ["start-03-b C=8: 7 of 900"])
    assert lasting_reasons(folder, 0) == {"C=8: # of #": "start-03-b C=8: 7 of 900"}


def cell(step_ms: float, reason: str = EMPTY, start: int = 0) -> Cell:
    void = void_cells(PLAN.starts(0)[start], [reason])[0]
    return replace(void, concurrency=1, itl_p50_ms=step_ms, tpot_p50_ms=step_ms, failures=0, short_outputs=0)


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


ALONE = replace(PLAN, window=WindowRules(settle_s=2, window_s=8, decode_only=True))
SHORT = "2 requests began or ended in a window of decode alone; --lengths must ask for at least 1,100 tokens"


@pytest.mark.parametrize(
    ("reason", "step_ms", "says"),
    [(SHORT, 25.0, "1,100 (--lengths 64,1100)"), ("a stream stood still for 40%", 25.0, "440 (--lengths 64,440)")],
)
def test_answers_in_windows_of_decode_alone_are_asked_to_outlast_them(reason: str, step_ms: float, says: str) -> None:
    said = remedy([f"C=1: {reason}"], ALONE, [cell(step_ms, reason)])
    assert said.startswith("answers of 200 tokens end before --settle 2 and --window 8 do; ask for ")
    assert says in said


def test_answers_that_outlast_windows_of_decode_alone_are_not_blamed() -> None:
    assert remedy(["C=1: a stream stood still"], ALONE, [cell(60.0, "a stream stood still")]) == ""


@pytest.mark.parametrize(
    ("cells", "hopeless"),
    [
        ([cell(9, SHORT), cell(9, SHORT), cell(9, "x", 1)], True),
        ([cell(9, SHORT), cell(9, "x"), cell(9, SHORT, 1), cell(9, "x", 1)], False),
        ([replace(cell(9, SHORT), failures=1)], False),
        ([], False),
    ],
)
def test_answers_are_too_short_where_no_level_of_a_start_had_its_window(cells: list[Cell], hopeless: bool) -> None:
    assert too_short_answers(cells) == hopeless
