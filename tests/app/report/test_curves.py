from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.errors import UsageError
from app.report.campaign_view import CampaignView, read_campaign
from app.report.curves import answer_grid, answers, throughput_curves, unanswered
from loadtest.cells import Cell
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan


def bent(cell: Cell) -> Cell:
    """The same start on an engine that gains nothing beyond concurrency 2."""
    return replace(cell, tokens_per_s=cell.tokens_per_s * {1: 1.0, 2: 1.0, 4: 2**-0.5}[cell.concurrency])


def test_every_variant_gets_an_answer_with_interval(view: CampaignView) -> None:
    lines = answers(view, throughput_curves(view))
    assert len(lines) == 3
    assert lines[0].startswith("pinned rises from C=1 to 4: +")
    assert lines[0].endswith("more per added stream; no knee up to C=4")


def test_the_slope_over_the_levels_is_said_to_be_of_least_squares_wherever_it_stands(view: CampaignView) -> None:
    curves = throughput_curves(view)
    (first, *_) = curves
    rates = [first.tokens_per_s[c] for c in (1, 2, 4)]
    assert first.per_stream[0] == pytest.approx(np.polyfit((1, 2, 4), rates, 1)[0], rel=1e-3)
    assert all(", by least squares " in line for line in answers(view, curves))
    assert "tok/s per added stream, least squares" in answer_grid(curves).columns


def test_no_answer_is_claimed_while_blocks_are_missing(view: CampaignView) -> None:
    interim = replace(view, verdict={**view.verdict, "interim": True})
    lines = answers(interim, throughput_curves(interim))
    assert [line.startswith("so far, not a verdict: ") for line in lines] == [True] * 3


def test_knee_is_where_the_curve_stops_rising(tmp_path: Path) -> None:
    plan = make_plan()
    view = read_campaign(make_campaign(tmp_path / "bent", plan, [bent(c) for c in draw_cells(plan, {})]))
    assert "knee at C=2" in answers(view, throughput_curves(view))[0]


def test_question_can_be_chosen(view: CampaignView) -> None:
    grid = answer_grid(throughput_curves(view, (2, 4)))
    assert grid.columns[1] == "C=2 to 4"
    assert [row[0] for row in grid.rows] == ["pinned", "v1", "v2"]


def test_question_about_what_was_not_measured_is_refused(view: CampaignView) -> None:
    with pytest.raises(UsageError, match="slope between 60, 90: the campaign measured 1, 2, 4"):
        throughput_curves(view, (60, 90))


def test_too_few_blocks_give_no_answer(view: CampaignView) -> None:
    few = replace(view, cells=tuple(c for c in view.cells if c.block < 2))
    assert throughput_curves(few) == ()
    assert unanswered(few, ()) == "slope not answered for pinned, v1 and v2: 3 usable blocks are needed"
    assert unanswered(view, throughput_curves(view)) == ""
