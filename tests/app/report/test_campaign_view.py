from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import RecordsError
from app.report.campaign_view import CampaignView, read_campaign
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def test_view_holds_every_variant_level_and_start(view: CampaignView) -> None:
    assert view.variants == ("pinned", "v1", "v2")
    assert len(view.measured) == 9
    assert len(view.starts) == 24
    assert [j.variant for j in view.judged] == ["v1", "v2"]


def test_view_shows_the_rates_that_the_verdict_rests_on(view: CampaignView) -> None:
    level = next(v for v in view.verdict["variants"] if v["variant"] == "v1")["levels"][0]
    assert view.measured["v1", 1].tokens_per_s == pytest.approx(level["variant_tokens_per_s"])
    assert view.measured["pinned", 1].tokens_per_s == pytest.approx(level["control_tokens_per_s"])


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("verdict.json", "verdict.json could not be read"),
        ("cells.csv", "cells.csv could not be read"),
        ("manifest.json", "manifest.json could not be read"),
        ("blocks/001", "blocks/001 is not there"),
    ],
)
def test_missing_part_is_named_and_the_rest_is_read(copied: Path, part: str, named: str) -> None:
    path = copied / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    view = read_campaign(copied)
    assert any(m.startswith(named) for m in view.missing)
    assert view.plan.blocks == 4


def test_torn_verdict_is_named(copied: Path) -> None:
    (copied / "verdict.json").write_text('{"variants": [')
    view = read_campaign(copied)
    assert view.judged == ()
    assert any("verdict.json is not JSON" in m for m in view.missing)


def test_foreign_verdict_is_named_not_believed(copied: Path) -> None:
    (copied / "verdict.json").write_text('{"variants": [{"variant": "v1", "decision": "accept"}]}')
    view = read_campaign(copied)
    assert view.judged == ()
    assert any("judge the campaign again" in m for m in view.missing)


def test_folder_without_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="plan"):
        read_campaign(tmp_path)


def test_campaign_of_unknown_origin_counts_as_simulated(copied: Path) -> None:
    (copied / "manifest.json").unlink()
    (copied / "verdict.json").unlink()
    assert read_campaign(copied).simulated


def test_void_block_has_no_weight_in_what_is_shown(tmp_path: Path) -> None:
    plan = make_plan()
    cells = [replace(c, reasons=("throttled",)) if (c.block, c.start) == (2, 0) else c for c in draw_cells(plan)]
    victim = next(c.variant for c in cells if (c.block, c.start) == (2, 0))
    view = read_campaign(make_campaign(tmp_path / "void", plan, cells))
    assert list(view.void_blocks) == [2]
    assert {block for block, _, _ in view.measured[victim, 1].starts} == {0, 1, 3}
