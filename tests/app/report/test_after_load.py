from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from app.campaign.facts import alarms
from app.records import read_json, write_json
from app.report.after_load import launches_grid, missing_grid, pairs_grid
from app.report.campaign_view import CampaignView, read_campaign
from app.report.html import render_html

PAIR = {"variant": "v1", "control": "pinned"}
OUTPUTS = PAIR | {"relative": 0.0031, "worst_head": 0.012, "control_relative": 0.0, "control_worst_head": 0.0}
ANSWERS = PAIR | {"max_nats": 0.4, "control_max_nats": 0.01, "places": 24, "alarm": True}
LAUNCH = {"grid": [96, 4, 1], "block": [256, 1, 1], "registers": 168, "shared_bytes": 33792, "config": "(16,8,2)"}
TIMES = {"count": 100, "per_step": 10.0, "mean_us": 23.5, "us_per_step": 235.0}
SHOWN = {
    "outputs": {"against": [OUTPUTS | {"limit": 0.01, "limit_head": 0.05}]},
    "logprobs": {"against": [ANSWERS]},
    "trace": {"requests": 96, "share_of_gpu_time": 0.41, "launches": [LAUNCH | TIMES]},
}


def shown(folder: Path, tmp_path: Path, evidence: Any) -> CampaignView:
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    proof = next((copied / "blocks" / "000").glob("start-*-v1")) / "proof.json"
    write_json(proof, dict(read_json(proof)) | {"evidence": evidence})
    return read_campaign(copied)


def test_pairs_stand_beside_the_controls_own_difference_and_the_limit(folder: Path, tmp_path: Path) -> None:
    outputs, answers = pairs_grid(shown(folder, tmp_path, {"after_load": SHOWN})).rows
    assert outputs[3:] == ("0.00310 / 0.01200", "0.00000 / 0.00000", "0.01000 / 0.05000")
    assert answers[3:] == ("0.40000", "0.01000", "alarm")


def test_launches_are_shown_a_decode_step(folder: Path, tmp_path: Path) -> None:
    (row,) = launches_grid(shown(folder, tmp_path, {"after_load": SHOWN})).rows
    assert row[:5] == ("v1", "96", "(16,8,2)", "96x4x1", "256x1x1")
    assert row[5:] == ("33,792", "168", "100", "10.00", "23.50", "235.00", "0.410")


def test_what_could_not_be_looked_at_says_why_and_the_page_holds_all(folder: Path, tmp_path: Path) -> None:
    view = shown(folder, tmp_path, {"after_load": SHOWN | {"trace": {"why_not": "no CUPTI <here>"}}})
    assert missing_grid(view).rows == (("v1", "trace", "no CUPTI <here>"),)
    page = render_html(view)
    assert "no CUPTI &lt;here&gt;" in page
    assert "0.00310 / 0.01200" in page


@pytest.mark.parametrize("evidence", ["a word", {"after_load": []}, {"after_load": {"outputs": {"against": [1]}}}])
def test_evidence_of_another_form_shows_nothing(folder: Path, tmp_path: Path, evidence: Any) -> None:
    view = shown(folder, tmp_path, evidence)
    assert [g(view).rows for g in (pairs_grid, launches_grid, missing_grid)] == [(), (), ()]


def test_an_alarm_becomes_a_warning_of_the_verdict() -> None:
    (line,) = alarms([{"evidence": {"after_load": SHOWN}}, {"variant": "a simulated one"}])
    assert "up to 0.4 nats from those of pinned, whose own are 0.01 apart" in line
