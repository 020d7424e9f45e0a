from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

from app.report import write_reports
from app.report.campaign_view import CampaignView
from app.report.export import COLUMNS, level_records, render_csv, summary
from app.report.markdown import escaped, render_markdown

FORMATS = Path(__file__).parents[3] / "docs" / "formats.md"


def test_every_variant_and_level_has_a_record(view: CampaignView) -> None:
    records = {(r["variant"], r["concurrency"]): r for r in level_records(view)}
    assert len(records) == 9
    assert records["v1", 4]["outcome"] == "worse"
    assert records["v1", 4]["prediction"] == "refuted"
    assert records["pinned", 1]["effect_pct"] is None


def test_csv_holds_the_same_figures_as_the_summary(view: CampaignView) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(view))))
    for row, level in zip(rows, summary(view)["levels"], strict=True):
        assert row == {k: "" if v is None else str(v) for k, v in level.items()}


def test_summary_is_plain_json_with_the_simulated_mark(view: CampaignView) -> None:
    data = json.loads(json.dumps(summary(view), allow_nan=False))
    assert data["simulated"] is True
    assert data["time_scale"] == 10.0
    assert [d["decision"] for d in data["decisions"]] == ["reject", "undecided"]


def test_every_field_is_documented(view: CampaignView) -> None:
    documented = set(re.findall(r"`([a-z0-9_]+)`", FORMATS.read_text()))
    assert {*COLUMNS, *summary(view), *summary(view)["decisions"][0]} <= documented


def test_reports_are_written_whole_into_the_run_folder(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    files = write_reports(copied)
    assert {p.name for p in (files.html, files.markdown, files.summary, files.levels)} <= {
        p.name for p in copied.iterdir()
    }
    assert not list(copied.glob(".*.partial"))


def test_markdown_says_verdict_first_and_marks_what_is_simulated(view: CampaignView) -> None:
    text = render_markdown(view)
    assert text.startswith("> **SIMULATED, time scale 10")
    assert text.index("### v1 is rejected") < text.index("| C |")
    assert "| -2 to +2: refuted |" in text


def test_words_from_outside_do_nothing_in_markdown() -> None:
    words = "<script>x</script> | a\nb `c` [d](e) *f* <!-- g -->"
    assert escaped(words) == (r"&lt;script&gt;x&lt;/script&gt; \| a b \`c\` \[d\](e) \*f\* &lt;!-- g --&gt;")
