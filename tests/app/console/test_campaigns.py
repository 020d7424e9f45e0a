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
from app.console.campaigns import compare_from_options, enter_ledger
from app.errors import UsageError
from app.records import read_json, write_json, write_text

OLDER = Path(__file__).parents[1] / "campaign" / "older_run"


def judged(name: str, *_: object) -> compare.Outcome:
    """Stands for the rest of a campaign that is resumed: every block is measured."""
    folder = open_run(name)
    verdict = compare.judge_again(folder)
    write_text(folder.verdict_file, verdict.text())
    return compare.Outcome(folder, verdict)


def begun_as(run: Path, setup: Setup, simulated: bool) -> None:
    """Lets the older run be one of that setup, whose proofs and manifest say whether it was simulated."""
    write_json(run / "setup.json", asdict(setup))
    for path in (run / "manifest.json", *run.glob("blocks/*/*/proof.json")):
        write_json(path, read_json(path) | {"simulated": simulated})


@pytest.mark.parametrize(
    ("setup", "simulated", "ledger", "other"),
    [(Setup(demo=True), True, "runs", "."), (Setup(), True, "runs", "."), (Setup(engine="sglang"), False, ".", "runs")],
)
def test_what_is_simulated_is_entered_beside_the_runs_and_a_campaign_on_gpus_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: Setup, simulated: bool, ledger: str, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "resume", judged)
    monkeypatch.setattr(campaigns, "show_campaign_folder", lambda _: None)
    shutil.copytree(OLDER, tmp_path / "runs" / "a")
    begun_as(tmp_path / "runs" / "a", setup, simulated)
    unused = dict.fromkeys(inspect.signature(compare_from_options).parameters, "")
    compare_from_options(**{**unused, "resume": "a", "quiet": True})  # type: ignore[arg-type]
    assert "campaign a" in (tmp_path / ledger / "EXPERIMENTS.md").read_text()
    assert not (tmp_path / other / "EXPERIMENTS.md").exists()


@pytest.mark.parametrize(("simulated", "ledger", "other"), [(True, "runs", "."), (False, ".", "runs")])
def test_a_campaign_entered_by_hand_stands_where_compare_enters_it_and_the_file_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    simulated: bool,
    ledger: str,
    other: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLDER, tmp_path / "runs" / "a")
    begun_as(tmp_path / "runs" / "a", Setup(engine="sim" if simulated else "sglang"), simulated)
    judged("a")
    enter_ledger("a", False)
    place = Path(ledger) / "EXPERIMENTS.md"
    assert "campaign a" in place.read_text()
    assert not (tmp_path / other / "EXPERIMENTS.md").exists()
    assert capsys.readouterr().out.endswith(f"\n\nledger: {place}\n")


@pytest.mark.parametrize("number", [0, -5])
def test_a_calibration_of_no_campaigns_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=f"--campaigns {number} is out of range; at least 1"):
        campaigns.calibrate(number)
