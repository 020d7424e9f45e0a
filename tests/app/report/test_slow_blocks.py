from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.report.campaign_view import CampaignView, read_campaign
from app.report.export import summary
from app.report.html import render_html
from app.report.markdown import render_markdown
from app.report.slow_blocks import RULE, lines
from loadtest.cells import Cell
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan
from tests.app.report.test_terminal import printed

SAID = "block 4 is slow in every start of all its variants: by "


def slowed(cell: Cell, variants: tuple[str, ...]) -> Cell:
    slow = cell.block == 3 and cell.variant in variants and cell.concurrency > 1
    return replace(cell, tokens_per_s=cell.tokens_per_s * (0.9 if slow else 1))


def viewed(folder: Path, *variants: str) -> CampaignView:
    plan = make_plan()
    return read_campaign(make_campaign(folder, plan, [slowed(c, variants) for c in draw_cells(plan)], rows_s=0.1))


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> CampaignView:
    return viewed(tmp_path_factory.mktemp("runs") / "hosted", "pinned", "v1", "v2")


def test_a_block_slow_in_all_variants_is_named_with_its_losses(hosted: CampaignView) -> None:
    (line,) = lines(hosted)
    assert line.startswith(SAID)
    assert [part.split(" % at ")[1] for part in line.removeprefix(SAID).split(" and ")] == ["C=2", "C=4"]


def test_a_block_slow_in_one_pair_alone_is_named_with_that_pair(tmp_path: Path) -> None:
    (line,) = lines(viewed(tmp_path / "pair", "pinned", "v2"))
    assert line.startswith("block 4 is slow in every start of pinned and v2: by ")


def test_every_form_of_the_report_names_it(hosted: CampaignView) -> None:
    assert all(RULE in page and SAID in page for page in (render_html(hosted), render_markdown(hosted)))
    assert f"{SAID}" in " ".join(printed(hosted).split())
    records = summary(hosted)["blocks_slow"]
    assert [(r["block"], r["concurrency"]) for r in records] == [(3, 2), (3, 4)]
    assert records[0]["variants"] == ["pinned", "v1", "v2"]
    assert 8 < records[0]["slower_pct"] < 12


def test_nothing_is_said_where_no_block_is_slow_or_nothing_was_judged(view: CampaignView, hosted: CampaignView) -> None:
    assert all("slow as a whole" not in page for page in (render_html(view), render_markdown(view)))
    assert summary(view)["blocks_slow"] == []
    assert lines(replace(hosted, judged=())) == ()
