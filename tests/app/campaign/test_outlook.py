from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.neighbours import keep_cards
from app.campaign.outlook import advice, outlook
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.records import owned
from loadtest.plan import Plan

PLAN = Plan(seed=1, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=4)


def test_time_is_told_of_the_blocks_that_are_left(tmp_path: Path) -> None:
    assert list(outlook(RunFolder(tmp_path / "a"), Setup(), PLAN, 3, 1600.0)) == [
        "12 starts in 3 blocks take at least 20 min by plan"
    ]


def test_too_few_blocks_are_called_a_pilot_with_the_number_a_verdict_takes(tmp_path: Path) -> None:
    pilot, _ = outlook(RunFolder(tmp_path / "a"), Setup(), replace(PLAN, blocks=2), 2, 60.0)
    assert pilot.startswith("2 blocks are a pilot without a verdict, which takes 4 or more")
    assert "`./lab plan --campaign a` says how many an effect takes" in pilot


def test_a_pilot_too_small_to_plan_from_is_told(tmp_path: Path) -> None:
    pilot, _ = outlook(RunFolder(tmp_path / "a"), Setup(), replace(PLAN, blocks=2, design="single"), 2, 60.0)
    assert "needs 3 blocks of a single design" in pilot


def test_another_lab_at_work_is_warned_of_and_the_own_is_not(tmp_path: Path) -> None:
    with owned(tmp_path / "mine"), owned(tmp_path / "other"):
        other, _ = outlook(RunFolder(tmp_path / "mine"), Setup(), PLAN, 4, 60.0)
    assert other.startswith("another lab measures other on this machine: two at once void each other's blocks")


def test_another_lab_on_other_cards_is_told_without_a_call_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = Setup(engine="sglang")
    with owned(tmp_path / "mine"), owned(tmp_path / "other"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        keep_cards(RunFolder(tmp_path / "other"), servers)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
        other, _ = outlook(RunFolder(tmp_path / "mine"), servers, PLAN, 4, 60.0)
    assert "on other cards: CUDA_VISIBLE_DEVICES is 1 there and 0,2 here. Cores are not looked at" in other
    assert "wait" not in other


@pytest.mark.parametrize(("scale", "demo", "told"), [(10.0, False, True), (10.0, True, False), (1.0, False, False)])
def test_a_lower_time_scale_is_advised_where_there_is_the_option(scale: float, demo: bool, told: bool) -> None:
    said = advice(RunFolder(Path("runs/a")), replace(PLAN, time_scale=scale), Setup(demo=demo))
    assert "`./lab compare --resume a`" in said
    assert ("--time-scale under 10" in said) == told
