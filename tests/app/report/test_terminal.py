from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from app.records import read_json, write_json
from app.report.campaign_view import CampaignView, read_campaign
from app.report.terminal import print_campaign
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan


def printed(
    view: CampaignView, *, terminal: bool = False, width: int = 120, question: tuple[int, ...] | None = None
) -> str:
    out = io.StringIO()
    print_campaign(view, Console(file=out, force_terminal=terminal, width=width), question)
    return out.getvalue()


def test_one_table_per_concurrency_with_every_variant(view: CampaignView) -> None:
    text = printed(view)
    assert [line.strip() for line in text.splitlines() if line.startswith("C = ")] == ["C = 1", "C = 2", "C = 4"]
    levels = text.split("\nVerdict")[0]
    assert sum(line.startswith("pinned ") for line in levels.splitlines()) == 3


def test_row_says_effect_interval_and_outcome(view: CampaignView) -> None:
    judged = view.judged_variant("v1")
    level = judged.level(1) if judged else None
    assert level is not None
    row = next(line for line in printed(view).split("C = 1 ")[1].splitlines() if line.startswith("v1 "))
    assert f"{level.effect_pct:+.1f}" in row
    assert f"{level.simultaneous_low_pct:+.1f} to {level.simultaneous_high_pct:+.1f}" in row
    assert row.split()[-1] == f"{50.0}"
    assert "worse" in row


def test_row_names_its_control_where_there_are_several(view: CampaignView) -> None:
    several = replace(view, plan=replace(view.plan, controls={"pinned": "baseline", "v1": "pinned"}), cells=())
    rows = printed(several).split("C = 1 ")[1].split("C = 2 ")[0]
    assert "\nv1 vs pinned " in rows
    assert "\npinned vs baseline " in rows
    assert " vs " not in printed(view).split("\nVerdict")[0]


def test_void_attempt_that_was_measured_again_is_counted(view: CampaignView) -> None:
    attempt = {"block": 0, "attempt": 1, "void": ["start-00-v1 C=1: client late"]}
    assert "1 void attempt measured again" in printed(replace(view, redone=(attempt,)))
    assert "measured again" not in printed(view)


def test_simulated_mark_with_time_scale_is_the_first_line(view: CampaignView) -> None:
    assert printed(view).startswith("SIMULATED, time scale 10")


def test_verdict_of_every_variant_stands_last_with_its_prediction(view: CampaignView) -> None:
    text = printed(view).split("\nVerdict")[1]
    assert re.search(r"^v1 +pinned +reject ", text, re.MULTILINE)
    assert "C=4: predicted +15 to +25 %" in text
    assert "refuted" in text


def test_pipe_gets_no_escape_codes(view: CampaignView) -> None:
    assert "\x1b" not in printed(view)
    assert "\x1b" in printed(view, terminal=True)


def test_words_in_brackets_are_not_taken_for_styles(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    verdict = read_json(copied / "verdict.json")
    verdict["variants"][0]["stamps"] = ["drawn [red](16,4,2)[/red]"]
    write_json(copied / "verdict.json", verdict)
    assert "drawn [red](16,4,2)[/red]" in printed(read_campaign(copied))


def test_void_block_is_named_above_the_tables(tmp_path: Path) -> None:
    plan = make_plan()
    cells = [replace(c, reasons=("throttled",)) if c.block == 1 else c for c in draw_cells(plan)]
    text = printed(read_campaign(make_campaign(tmp_path / "void", plan, cells)))
    assert text.index("void: block 2: throttled") < text.index("C = 1")


@pytest.mark.parametrize("part", ["verdict.json", "cells.csv"])
def test_missing_part_is_named(folder: Path, tmp_path: Path, part: str) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    (copied / part).unlink()
    assert f"missing: {part} could not be read" in printed(read_campaign(copied))


def test_a_slope_that_was_asked_for_is_answered_or_said_to_have_no_answer(view: CampaignView) -> None:
    assert "pinned rises from C=2 to 4" in printed(view, question=(2, 4))
    few = replace(view, cells=tuple(c for c in view.cells if c.block < 2))
    assert "slope not answered for pinned, v1 and v2" in printed(few, question=(2, 4))


def test_eighty_columns_show_every_figure(view: CampaignView) -> None:
    lines = printed(view, terminal=True, width=80).splitlines()
    heading = next(line for line in lines if "tok/s" in line)
    assert [name in heading for name in ("interval %", "outcome", "TPOT ms", "TTFT ms")] == [True] * 4
