"""What a sitting does before it measures, and what it hands on to those that measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from app.campaign import blocks, compare, conformance, gated
from app.campaign.neighbours import Cards, Neighbour, neighbours
from app.campaign.runs import RUNS, new_run
from app.campaign.runtimes import Setup
from app.progress import Progress
from app.records import write_json
from loadtest.plan import Plan

PLAN = Plan(seed=1, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2)
SERVERS = Setup(engine="sglang")
QUIET = Progress(1, quiet=True)


class Reached(Exception):  # noqa: N818
    """Ends a campaign at the step that a test looks at."""


def looking(found: list[Neighbour]) -> Callable[..., NoReturn]:
    """A step at which another lab, on card 0, looks who is beside it."""

    def look(*_: object) -> NoReturn:
        found.extend(neighbours(RUNS, Cards("0")))
        raise Reached

    return look


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This lab is on card 1, and runs what it could not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(compare, "require_runnable", lambda *_: None)


def kept(name: str, setup: Setup) -> None:
    """Leaves a campaign of an earlier sitting, which measured on card 0."""
    folder = new_run(name)
    folder.keep_plan(PLAN)
    write_json(folder.path / "setup.json", {"runtime": setup.runtime, "engine": setup.engine})
    write_json(folder.path / "cards.json", {"visible": "0"})


@pytest.mark.usefixtures("here")
def test_a_new_campaign_has_left_word_of_its_cards_before_it_loads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Neighbour]()
    monkeypatch.setattr(compare, "load_now", looking(seen))
    with pytest.raises(Reached):
        compare.begin(PLAN, SERVERS, "a", QUIET)
    assert seen == [Neighbour("a", "1", True)]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("step", ["load_now", "require_runnable", "load_variants"])
def test_a_resumed_campaign_tells_its_cards_of_now_before_anything_that_takes_time(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    seen = list[Neighbour]()
    kept("a", SERVERS)
    monkeypatch.setattr(compare, step, looking(seen))
    with pytest.raises(Reached):
        compare.resume("a", QUIET)
    assert seen == [Neighbour("a", "1", True)]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Campaigns that were handed on to be measured, on a stack that is none."""
    campaigns = list[Any]()

    def measure(campaign: Any) -> None:
        campaigns.append(campaign)
        raise Reached

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "make_ready", lambda *_: ({}, None))
    monkeypatch.setattr(conformance, "require_conformance", lambda _: None)
    monkeypatch.setattr(gated, "keep_findings", lambda *_: None)
    monkeypatch.setattr(blocks, "run", measure)
    return campaigns


def test_a_campaign_is_measured_with_the_pause_and_the_end_of_blocks_that_its_caller_gives(
    measured: list[Any],
) -> None:
    def pause() -> bool:
        return False

    def ended() -> None: ...

    with pytest.raises(Reached):
        compare.begin(PLAN, Setup(), "a", QUIET, pause, ended)
    with pytest.raises(Reached):
        compare.resume("a", QUIET, pause, ended)
    assert [(c.folder.path.name, c.pause, c.ended) for c in measured] == [("a", pause, ended)] * 2
