from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import RecordsError
from loadtest.judge import calibrate, calibration, calibration_report
from loadtest.judge.calibrate import NOISES, SLOW_BLOCKS, broken_promises, measure
from loadtest.judge.calibrate_power import PlannedPower, broken_plans, calibrate_power
from loadtest.judge.calibration_report import BEGIN, END, Calibration, write
from loadtest.judge.facts import Facts
from loadtest.judge.modes import find_modes
from loadtest.judge.rules import decide
from loadtest.judge.stats import analyse
from loadtest.judge.verdict import judge
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Plan

CAMPAIGNS = 300


@pytest.fixture(scope="module")
def small() -> Calibration:
    rows = tuple(calibrate.calibrate(CAMPAIGNS, blocks=(4, 8), designs=("mirrored",)))
    return Calibration(rows, tuple(calibrate_power(60)))


def test_a_few_hundred_campaigns_keep_every_promise_they_can_show(small: Calibration) -> None:
    assert [b for b in broken_promises(small.rows, standard_errors=4) if "coverage" not in b] == []
    assert all(0.91 <= r.coverage <= 0.98 for r in small.rows if r.unimodal == "yes")


def test_the_committed_table_keeps_every_promise() -> None:
    committed = calibration_report.read()
    rows = committed.rows
    assert {(r.design, r.blocks) for r in rows} == {(d, n) for d in ("mirrored", "single") for n in range(4, 17)}
    assert min(r.campaigns for r in rows) >= 10_000
    assert committed.broken == []


@pytest.mark.parametrize(
    "spoiled",
    [
        {"false_verdicts": 0.09},
        {"coverage": 0.90},
        {"coverage": 0.98},
        {"simultaneous_coverage": 0.92},
        {"false_accept": 0.2},
        {"unimodal": "no", "withheld": 0.94},
        {"truth": "reference v1", "found": 0.5},
        {"truth": "-2 % everywhere", "found": 0.5},
    ],
)
def test_a_broken_promise_is_named(small: Calibration, spoiled: dict[str, Any]) -> None:
    good = next(r for r in small.rows if (r.blocks, r.noise, r.truth) == (8, "quiet", "none"))
    good = replace(good, false_verdicts=0.05, coverage=0.95, simultaneous_coverage=0.95)
    assert broken_promises([good]) == []
    assert len(broken_promises([replace(good, **spoiled)])) == 1


def test_a_plan_that_finds_too_little_is_named() -> None:
    row = PlannedPower("quiet", -7.0, 4, 0.9, 1000, 4, 4, 4, 0.85, 0.01)
    assert broken_plans([row]) == ["quiet, -7 % from 4 blocks: found in 0.8500"]


def test_same_seed_gives_the_same_row() -> None:
    first, again = (repr(measure("single", 4, NOISES[0], "none", 50, 3)) for _ in range(2))
    assert first == again


def test_slow_blocks_keep_nothing_back(small: Calibration) -> None:
    rows = {(r.blocks, r.truth): r for r in small.rows if r.noise == SLOW_BLOCKS.name}
    assert all(r.unimodal == "yes" and r.uncancelled == 0 and r.modes_flagged < 0.06 for r in rows.values())
    assert rows[8, "-2 % everywhere"].found > 0.95


def test_modes_that_cancel_in_every_block_are_not_asked_to_be_withheld() -> None:
    noise = Noise("stalls", stall_depth=0.24, stall_share=0.25)
    equal = 0.25**2 + 0.75**2
    assert measure("single", 4, noise, "none", 400, 0).uncancelled == pytest.approx(1 - equal**4, abs=0.06)


@pytest.mark.parametrize("place", range(5))
def test_thousands_of_campaigns_are_judged_as_one_campaign_is(place: int) -> None:
    plan = Plan(11, {"changed": "control"}, calibrate.LEVELS, 6)
    truth = np.array(calibrate.TRUTHS["gain at high C, loss at C=1"])
    drawn = simulate(plan, {"changed": truth}, NOISES[0], 5, np.random.default_rng(0))
    rates, _ = drawn.arms("changed")
    means = rates.mean(axis=3)
    a = analyse(means[:, :, 1] - means[:, :, 0], None, 0.05, 0.01)
    rules = decide(a, find_modes(rates).bimodal, 0.05, 0.01)
    levels = judge(plan, drawn.cells(place), Facts("one", simulated=True)).variants[0].levels
    assert [x.outcome == "better" for x in levels] == rules.better[place].tolist()
    assert [x.outcome == "worse" for x in levels] == rules.worse[place].tolist()
    assert [x.regressed for x in levels] == rules.regressed[place].tolist()


def test_tables_and_summary_are_written_between_the_marks(small: Calibration, tmp_path: Path) -> None:
    document = tmp_path / "statistics.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(small, tmp_path, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert text.count("| mirrored |") == 2
    assert len((tmp_path / "verdict_calibration.csv").read_text().splitlines()) == 1 + len(small.rows)


def test_a_document_without_marks_is_refused(small: Calibration, tmp_path: Path) -> None:
    document = tmp_path / "statistics.md"
    document.write_text("nothing\n")
    with pytest.raises(RecordsError, match="needs one line"):
        write(small, tmp_path, document)


def test_the_committed_document_shows_the_committed_table() -> None:
    shown = calibration_report.summary(calibration_report.read())
    assert shown in calibration_report.DOCUMENT.read_text()


def test_an_uncalibrated_size_is_cited_as_unknown() -> None:
    table = calibration.read_table()
    assert table.cite("mirrored", 40) is None
    cited = table.cite("single", 9)
    assert cited is not None
    assert cited.blocks == 9


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="invoke calibrate-verdict"):
        calibration.read_table(tmp_path / "none.csv")
