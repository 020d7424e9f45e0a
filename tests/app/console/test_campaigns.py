from __future__ import annotations

import inspect
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from app.campaign import compare
from app.campaign.runs import open_run
from app.campaign.runtimes import Setup
from app.console import campaigns
from app.console.campaigns import compare_from_options
from app.records import write_json, write_text

OLDER = Path(__file__).parents[1] / "campaign" / "older_run"


def judged(name: str, *_: object) -> compare.Outcome:
    """Stands for the rest of a campaign that is resumed: every block is measured."""
    folder = open_run(name)
    verdict = compare.judge_again(folder)
    write_text(folder.verdict_file, verdict.text())
    return compare.Outcome(folder, verdict)


@pytest.mark.parametrize(
    ("setup", "ledger", "other"),
    [(Setup(demo=True), "runs", "."), (Setup(), "runs", "."), (Setup(engine="sglang"), ".", "runs")],
)
def test_what_is_simulated_is_entered_beside_the_runs_and_a_campaign_on_gpus_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: Setup, ledger: str, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "resume", judged)
    monkeypatch.setattr(campaigns, "show_campaign_folder", lambda _: None)
    shutil.copytree(OLDER, tmp_path / "runs" / "a")
    write_json(tmp_path / "runs" / "a" / "setup.json", asdict(setup))
    unused = dict.fromkeys(inspect.signature(compare_from_options).parameters, "")
    compare_from_options(**{**unused, "resume": "a", "quiet": True})  # type: ignore[arg-type]
    assert "campaign a" in (tmp_path / ledger / "EXPERIMENTS.md").read_text()
    assert not (tmp_path / other / "EXPERIMENTS.md").exists()
