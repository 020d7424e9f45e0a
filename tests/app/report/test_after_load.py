from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from app.campaign.facts import alarms
from app.records import read_json, write_json
from app.report.after_load import explained_grid, launches_grid, missing_grid, pairs_grid
from app.report.campaign_view import CampaignView, read_campaign
from app.report.html import render_html
from app.report.markdown import render_markdown
from app.report.wording import signed

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


def test_the_kernels_own_time_predicts_what_stands_beside_the_measured_effect(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    level = max(read_campaign(copied).plan.concurrencies)
    for variant, own_us, gpu_us in (("pinned", 100.0, 1000.0), ("v1", 200.0, 1110.0)):
        proof = next((copied / "blocks" / "000").glob(f"start-*-{variant}")) / "proof.json"
        trace = {"requests": level, "us_per_step": own_us, "gpu_us_per_step": gpu_us}
        write_json(proof, dict(read_json(proof)) | {"evidence": {"after_load": {"trace": trace}}})
    view = read_campaign(copied)
    (row,) = explained_grid(view).rows
    judged = view.judged_variant("v1")
    assert judged is not None
    # A tenth of the control's step takes twice its time: 1 / 1.1.
    assert row[:7] == ("v1", "pinned", str(level), "100.0", "200.0", "0.100", "-9.1")
    found = judged.level(level)
    assert found is not None
    assert row[7] == signed(found.effect_pct)
    assert all("What the traced kernel time explains" in page for page in (render_html(view), render_markdown(view)))


def test_traces_of_different_loads_explain_nothing(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    for variant, requests in (("pinned", 8), ("v1", 96)):
        proof = next((copied / "blocks" / "000").glob(f"start-*-{variant}")) / "proof.json"
        trace = {"requests": requests, "us_per_step": 10.0, "gpu_us_per_step": 100.0}
        write_json(proof, dict(read_json(proof)) | {"evidence": {"after_load": {"trace": trace}}})
    view = read_campaign(copied)
    assert explained_grid(view).rows == ()
    assert "explains" not in render_markdown(view)


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


def test_alarms_of_several_starts_are_one_warning_with_the_most_of_them() -> None:
    pairs = [ANSWERS | {"max_nats": nats, "control_max_nats": own} for nats, own in ((0.2, 0.02), (0.4, 0.01))]
    (line,) = alarms({"evidence": {"after_load": {"logprobs": {"against": [pair]}}}} for pair in pairs)
    assert "up to 0.4 nats from those of pinned, whose own are 0.01 apart (the most of 2 starts); look" in line


def test_a_proof_that_stands_for_a_lost_one_is_no_second_start_that_was_looked_at() -> None:
    lost = {"evidence": {"lost": "its disk is gone", "after_load": SHOWN}}
    (line,) = alarms([lost, {"evidence": {"after_load": SHOWN}}, lost])
    assert "whose own are 0.01 apart; look" in line
