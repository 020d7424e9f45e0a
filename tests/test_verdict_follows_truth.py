"""Whole campaigns through real processes, the real router and the real load driver, with the truth swapped beneath."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.campaign.compare import Outcome, begin, write_plan
from app.campaign.runtimes import Setup
from app.engine.sim.engine import CALIBRATION
from app.progress import Progress
from loadtest.judge.power import MIN_BLOCKS
from loadtest.plan import Lengths, WindowRules

# A block that other work on the machine disturbs is done again, up to twice.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def with_effect(folder: Path, percent: float) -> Path:
    """The shipped calibration with one effect of (16,8,2) at every batch."""
    text = CALIBRATION.read_text()
    section = re.search(r'  "\(16,8,2\)":\n(?:    - .*\n)+', text)
    assert section
    swapped = f'  "(16,8,2)":\n    - {{batch: 1, percent: {percent}, source: "assumed for a test"}}\n'
    path = folder / "calibration.yaml"
    path.write_text(text.replace(section.group(), swapped))
    return path


def campaign(folder: Path, percent: float) -> Outcome:
    plan = write_plan(
        ("v1",),
        (24,),
        blocks=6,
        design="single",
        seed=20,
        lengths=Lengths(64, 48),
        window=WindowRules(settle_s=4, window_s=20, fill_timeout_s=200),
        time_scale=10,
    )
    setup = Setup(calibration=str(with_effect(folder, percent)))
    outcome = begin(plan, setup, None, Progress(12, quiet=True))
    if outcome.verdict.blocks_used < MIN_BLOCKS:
        pytest.skip(f"machine too busy: only {outcome.verdict.blocks_used} of {plan.blocks} blocks could be measured")
    return outcome


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_gain_of_ten_percent_is_accepted(tmp_path: Path) -> None:
    variant = campaign(tmp_path, +10.0).verdict.variants[0]
    assert variant.decision == "accept"
    assert [level.outcome for level in variant.levels] == ["better"]
    assert all(level.low_pct is not None and 0 < level.low_pct < 10.5 for level in variant.levels)


def test_no_effect_is_called_neither_better_nor_worse(tmp_path: Path) -> None:
    variant = campaign(tmp_path, 0.0).verdict.variants[0]
    assert {level.outcome for level in variant.levels} <= {"equivalent", "undecided"}
    assert variant.decision == "undecided"
