from __future__ import annotations

import json
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.errors import RecordsError
from app.ledger.campaigns import record_campaign, record_promotion
from app.records import read_json, write_json
from loadtest.cells import Cell
from tests.app.report.made_campaign import RECORDS, draw_cells, make_campaign, make_plan

AT = datetime(2026, 11, 2, 9, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return draw_cells(make_plan())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cells: list[Cell]) -> Path:
    return make_campaign(tmp_path_factory.mktemp("runs") / "first", make_plan(), cells)


def promote(ledger: Path, variant: str = "v2", reason: str = "needed for a demonstration") -> str:
    image = "decode-ab/sglang:v2"
    return record_promotion(variant, image, decision="undecided", campaign="first", reason=reason, at=AT, ledger=ledger)


def test_entry_says_what_was_thought_predicted_found_and_concluded(folder: Path, tmp_path: Path) -> None:
    entry = record_campaign(folder, tmp_path / "EXPERIMENTS.md")
    assert "- Hypothesis: more warps hide the gather latency" in entry
    assert "- Prediction: -2 to +2 % at C=1 and +15 to +25 % at C=4" in entry
    assert "| +15 to +25: refuted |" in entry
    assert "- Conclusion: worse than -1 % at C=1,2,4. Prediction: refuted." in entry


def test_entry_carries_date_conditions_and_the_simulated_mark(folder: Path, tmp_path: Path) -> None:
    entry = record_campaign(folder, tmp_path / "EXPERIMENTS.md")
    assert "**SIMULATED, time scale 10" in entry
    assert "- Date: 2026-11-02" in entry
    assert "host lab-1" in entry


def test_writing_a_campaign_again_replaces_its_entry_only(folder: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    record_campaign(folder, ledger)
    ledger.write_text(ledger.read_text() + "\nA word by hand.\n")
    promote(ledger)
    before = ledger.read_text()
    record_campaign(folder, ledger)
    assert ledger.read_text() == before
    assert "A word by hand." in before


def test_campaigns_stand_in_the_order_they_were_entered(folder: Path, cells: list[Cell], tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    second = make_campaign(tmp_path / "second", make_plan(), cells)
    for one in (folder, second, folder):
        record_campaign(one, ledger)
    text = ledger.read_text()
    assert text.count("<!-- begin campaign") == 2
    assert text.index("begin campaign first") < text.index("begin campaign second")


def test_campaign_without_verdict_is_not_entered(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    (copied / "verdict.json").unlink()
    with pytest.raises(RecordsError, match=r"verdict\.json could not be read"):
        record_campaign(copied, tmp_path / "EXPERIMENTS.md")
    assert not (tmp_path / "EXPERIMENTS.md").exists()


def test_outside_words_cannot_break_the_ledger(folder: Path, tmp_path: Path) -> None:
    copied, ledger = Path(shutil.copytree(folder, tmp_path / "copied")), tmp_path / "EXPERIMENTS.md"
    hypothesis = "<script>alert(1)</script> | <!-- end campaign copied -->\n# heading `code` [x](y)"
    manifest = read_json(copied / "manifest.json")
    write_json(copied / "manifest.json", manifest | {"variants": {"v1": {**RECORDS["v1"], "hypothesis": hypothesis}}})
    record_campaign(copied, ledger)
    record_campaign(copied, ledger)
    text = ledger.read_text()
    assert "<script>" not in text
    assert text.count("<!-- end campaign copied -->") == 1
    assert "\n# heading" not in text


def test_hypothesis_that_was_not_recorded_is_said_to_be_so(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    write_json(copied / "manifest.json", {"simulated": True})
    assert "- Hypothesis: not recorded" in record_campaign(copied, tmp_path / "EXPERIMENTS.md")


def test_forced_promotion_is_entered_with_its_verdict_and_reason(tmp_path: Path) -> None:
    entry = promote(tmp_path / "EXPERIMENTS.md")
    assert "v2 promoted by force" in entry
    assert "Verdict at that time: undecided (campaign first)" in entry
    assert "Reason given: needed for a demonstration" in entry


def test_every_promotion_keeps_its_own_entry(tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    promote(ledger, "v1")
    promote(ledger, "v2")
    assert ledger.read_text().count("<!-- begin promotion") == 2


def test_labs_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    threads = [threading.Thread(target=promote, args=(ledger, f"v{i}")) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.read_text().count("<!-- begin promotion") == 12


def test_ledger_that_is_not_text_is_left_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    ledger.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordsError, match="could not be read"):
        promote(ledger)
    assert ledger.read_bytes() == b"\xff\xfe\x00"


def test_entry_of_an_older_verdict_follows_the_new_one(folder: Path, tmp_path: Path) -> None:
    copied, ledger = Path(shutil.copytree(folder, tmp_path / "copied")), tmp_path / "EXPERIMENTS.md"
    record_campaign(copied, ledger)
    verdict = json.loads((copied / "verdict.json").read_text())
    verdict["variants"][0] |= {"decision": "invalid", "reason": "what ran is not proven"}
    write_json(copied / "verdict.json", verdict)
    record_campaign(copied, ledger)
    assert "Conclusion: worse than" not in ledger.read_text().split("### v2")[0]
