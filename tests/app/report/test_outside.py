"""Words from models, servers and edited files can neither become markup nor steer a terminal, in any kind of report."""

from __future__ import annotations

import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from app.errors import InvalidCampaignError, RecordsError
from app.ledger.campaigns import record_campaign
from app.records import read_json, write_json
from app.report import write_reports
from app.report.campaign_view import read_campaign
from app.report.terminal import print_campaign
from tests.app.report.made_campaign import RECORDS

HOSTILE = (
    "<script>alert(1)</script>\x1b[2J\x1b]0;owned\x07\u202e[bold red]\r\nforged line\ud800 ![x](http://x) <img src=x>"
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PLACES = {
    "model": ("manifest.json", {"stack": {"model": HOSTILE}}),
    "hypothesis": ("manifest.json", {"variants": {"v1": {**RECORDS["v1"], "hypothesis": HOSTILE}}}),
    "void": ("blocks/000.void-1/block.json", {"schema": 1, "block": 0, "attempt": 1, "void": [HOSTILE]}),
    "void block": ("verdict.json", {"blocks_void": [{"block": 0, "variants": ["v1"], "reasons": [HOSTILE]}]}),
    "note": ("verdict.json", {"notes": [HOSTILE]}),
    "forced": ("forced.json", [{"variant": "v1", "at": HOSTILE, "decision": "reject", "reason": HOSTILE}]),
    "host": ("blocks/000/{start}/conditions.json", {"host": HOSTILE}),
    "config": ("blocks/000/{start}/proof.json", {"config": HOSTILE}),
}


@pytest.fixture(params=PLACES)
def hostile(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Path:
    """A campaign with hostile words in one place."""
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    name, change = PLACES[request.param]
    path = copied / name.format(start=next(copied.glob("blocks/000/start-*")).name)
    write_json(path, change if isinstance(change, list) or not path.exists() else read_json(path) | change)
    return copied


def test_no_report_carries_hostile_words_as_they_are(hostile: Path) -> None:
    reports = write_reports(hostile)
    for file in (reports.html, reports.markdown, reports.levels, reports.summary):
        text = file.read_text(encoding="utf-8")
        assert not CONTROL.search(text), file.name
        assert "\nforged line" not in text
    for file in (reports.html, reports.markdown):
        text = file.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "<img" not in text
        assert "![x](" not in text or file.suffix == ".html"


def test_no_terminal_is_steered(hostile: Path) -> None:
    out = StringIO()
    print_campaign(read_campaign(hostile), Console(file=out, force_terminal=True, color_system=None, width=300))
    assert not CONTROL.search(out.getvalue())
    assert "\nforged line" not in out.getvalue()


def test_no_ledger_entry_is_forged(hostile: Path) -> None:
    entry = record_campaign(hostile, hostile / "EXPERIMENTS.md")
    assert not CONTROL.search(entry)
    assert "<script" not in entry
    assert "\nforged line" not in entry


def test_a_variants_name_that_steers_a_terminal_is_refused(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    plan = read_json(copied / "plan.json")
    write_json(copied / "plan.json", plan | {"controls": {"v1\x1b[2J": "pinned"}})
    with pytest.raises(InvalidCampaignError, match="is no name"):
        read_campaign(copied)


def test_a_record_that_is_no_object_is_named_missing(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    write_json(copied / "manifest.json", [1])
    assert any("manifest.json holds no JSON object" in m for m in read_campaign(copied).missing)


def test_a_record_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(RecordsError, match="is not JSON"):
        read_json(tmp_path / "deep.json")
