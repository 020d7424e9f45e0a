"""Live figures and the interval so far: for the eye, and from whole blocks only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.cells import Cell, write_cells
from loadtest.drive.live import state_of
from loadtest.drive.sofar import intervals_so_far
from loadtest.order import StartOrder
from loadtest.plan import Plan
from loadtest.shape import Course, Mark

PLAN = Plan(3, {"v1": "pinned"}, (1, 8), blocks=4)


def cell(block: int, start: int, variant: str, concurrency: int, rate: float) -> Cell:
    times: dict[str, Any] = dict.fromkeys(
        ("ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "itl_p50_ms", "itl_p99_ms", "e2e_p50_ms", "decode_batch"), 1.0
    )
    return Cell(block, start, variant, concurrency, rate, 60.0, 100, 10, failures=0, short_outputs=0, **times)


def campaign(folder: Path, blocks: int) -> StartOrder:
    """A campaign in which v1 is 10 % slower, with so many whole blocks; the order of its next start."""
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN.to_json()))
    for block in range(blocks):
        for start in PLAN.starts(block):
            home = folder / "blocks" / f"{block:03d}" / start.name
            home.mkdir(parents=True)
            rate = (90.0 if start.variant == "v1" else 100.0) * (1 + block / 1000 + start.index / 10000)
            write_cells(home / "cells.csv", [cell(block, start.index, start.variant, c, rate) for c in (1, 8)])
    out = folder / "blocks" / f"{blocks:03d}" / "start-00-v1"
    return StartOrder(blocks, 0, "v1", "pinned", (8, 1), "s", "http://r", out)


def test_interval_so_far_holds_the_campaigns_effect(tmp_path: Path) -> None:
    found = intervals_so_far(campaign(tmp_path / "run", blocks=3))
    assert [(f["concurrency"], f["blocks"]) for f in found] == [(1, 3), (8, 3)]
    for level in found:
        assert level["low_pct"] <= level["effect_pct"] <= level["high_pct"]
        assert level["effect_pct"] == pytest.approx(-10, abs=0.1)


@pytest.mark.parametrize(("ended_s", "state"), [(4.0, "measured"), (6.0, "void"), (9.0, "measured")])
def test_an_answer_that_ended_inside_a_window_where_none_may_voids_its_level(ended_s: float, state: str) -> None:
    mark = Mark(8, 0, filled_ns=1, window_start_ns=int(5e9), window_end_ns=int(8e9))
    assert state_of(8, Course("fill", 0, (mark, Mark(1, 0))), [int(ended_s * 1e9)]) == state


def test_nothing_is_said_before_two_blocks_are_whole(tmp_path: Path) -> None:
    assert intervals_so_far(campaign(tmp_path / "run", blocks=1)) == []


def test_nothing_is_said_of_a_control_or_outside_a_campaign(tmp_path: Path) -> None:
    order = campaign(tmp_path / "run", blocks=3)
    assert intervals_so_far(dataclasses.replace(order, control="")) == []
    assert intervals_so_far(dataclasses.replace(order, out=tmp_path / "a" / "b" / "c")) == []


def test_file_half_written_is_left_for_the_next_look(tmp_path: Path) -> None:
    order = campaign(tmp_path / "run", blocks=3)
    next((tmp_path / "run").glob("blocks/*/*/cells.csv")).write_text("block,start\n0,")
    assert intervals_so_far(order) == []


@pytest.mark.parametrize("phase", ["fill", "settle", "window"])
def test_present_level_shows_its_phase_and_the_others_their_end(phase: str) -> None:
    marks = (Mark(1, 0, reasons=("late",)), Mark(8, 0), Mark(4, 0))
    course = Course(phase, 0, marks)  # type: ignore[arg-type]
    assert [state_of(c, course) for c in (1, 8, 4, 96)] == ["void", "measured", phase, "waiting"]
    assert state_of(1, None) == "waiting"
