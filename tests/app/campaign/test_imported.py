from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

import tasks
from app.campaign.imported import measured_pairs
from app.errors import UsageError
from app.kernel.variants import load_variants
from app.records import read_json, write_json
from loadtest.plan import Plan
from tests.loadtest.importing.test_runs import campaign, write_sglang, write_table


def ended(task: Callable[..., Any], **options: Any) -> tuple[int, str]:
    with pytest.raises(Exit) as caught:
        task(Context(), **options)
    return caught.value.code, str(caught.value.message)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder of an import of v1 and pinned, whose table names no control of pinned; v1 loses 7 %."""
    (tmp_path / "theirs").mkdir()
    campaign(tmp_path / "theirs", "sglang.jsonl", write_sglang, loss=0.07)
    monkeypatch.chdir(tmp_path)
    assert ended(tasks.compare, import_="theirs", id="one")[0] == 7
    return tmp_path / "runs" / "one"


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (("pinned", "v1"), {"v1": "pinned"}),
        (("v1", "pinned", "v2"), {"v1": "pinned", "v2": "pinned"}),
        (("v1", "pinned", "baseline"), {"v1": "pinned", "pinned": "baseline"}),
    ],
)
def test_a_control_is_judged_only_beside_its_own_control(names: tuple[str, ...], pairs: dict[str, str]) -> None:
    assert measured_pairs(load_variants(), names) == pairs


@pytest.mark.parametrize(("names", "missing"), [(("v1",), "its control pinned"), (("baseline",), "that it is the")])
def test_a_variant_without_its_control_is_compared_with_nothing(names: tuple[str, ...], missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        measured_pairs(load_variants(), names)


def test_an_import_is_judged_again_to_the_same_bytes(judged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = (judged / "verdict.json").read_bytes()
    (judged / "verdict.json").unlink()
    capsys.readouterr()
    tasks.report(Context(), id="one", json=True, slope="2,4")
    assert (judged / "verdict.json").read_bytes() == first
    told = json.loads(capsys.readouterr().out)
    assert (told["campaign"], told["decisions"][0]["decision"], told["missing"]) == ("one", "reject", [])
    assert all(curve["variant"] in ("pinned", "v1") for curve in told["curves"])


def test_an_imports_noise_plans_the_next_campaign(judged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    tasks.plan(Context(), campaign="one")
    assert "noise from campaign one; mirrored blocks" in capsys.readouterr().out


def test_an_import_without_its_cells_says_which_file_is_gone(judged: Path) -> None:
    (judged / "cells.csv").unlink()
    code, line = ended(tasks.report, id="one")
    assert (code, "cells.csv could not be read" in line) == (6, True)


def test_a_page_of_an_import_speaks_of_no_rows_and_no_engine_that_it_has_not(judged: Path) -> None:
    page = (judged / "report.html").read_text()
    assert "Judge it again from the same cells: invoke report --id one" in page
    assert "engine second" not in page


def test_an_import_has_nothing_to_resume(judged: Path) -> None:
    code, line = ended(tasks.compare, resume="one")
    assert (code, "nothing to resume" in line) == (2, True)


def test_an_imports_entry_claims_no_engine_and_no_missing_prediction(
    judged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks.ledger(Context(), id="one")
    entry = capsys.readouterr().out
    assert "each block starts every variant twice, as imported; margin" in entry
    assert "- Conditions: imported from sglang, engine and conditions not recorded" in entry
    assert "- Prediction: none for the concurrencies measured" in entry


def test_every_report_of_an_import_says_that_no_kernel_was_proven(judged: Path) -> None:
    for name in ("report.md", "report.html"):
        assert "nothing proves which kernel ran" in (judged / name).read_text()
    assert "settle_s" not in (judged / "report.html").read_text()


def test_variants_narrow_what_is_read_and_judged(judged: Path) -> None:
    table = judged.parents[1] / "theirs" / "import.csv"
    with table.open() as source:
        rows = list(csv.DictReader(source))
    write_table(table.parent, [*rows, {"block": "0", "start": "9", "variant": "v2", "file": "never-written.jsonl"}])
    assert ended(tasks.compare, import_="theirs", id="two", variants="v1")[0] == 7


def test_one_file_for_both_arms_is_an_error_of_usage(judged: Path) -> None:
    table = judged.parents[1] / "theirs" / "import.csv"
    table.write_text(table.read_text().replace("0-1-2-sglang.jsonl", "0-0-2-sglang.jsonl"))
    code, line = ended(tasks.compare, import_="theirs", id="two")
    assert (code, "0-0-2-sglang.jsonl of pinned holds, byte for byte, 0-0-2-sglang.jsonl of v1" in line) == (2, True)


def test_a_control_that_was_not_measured_is_an_error_of_usage(judged: Path) -> None:
    code, line = ended(tasks.compare, import_="theirs", id="two", variants="pinned,v1")
    assert (code, "no rows of baseline, the control of pinned" in line) == (2, True)


@pytest.mark.parametrize(
    ("options", "unheeded"),
    [
        ({"window": "30", "seed": "7"}, "--window, --seed"),
        ({"concurrency": "1,8"}, "--concurrency"),
        ({"time_scale": "2"}, "--time-scale"),
        ({"decode_only": True}, "--decode-only"),
        ({"resume": "one", "quiet": True}, "--resume"),
        ({"against": "pinned"}, "--against"),
    ],
)
def test_an_import_refuses_what_it_cannot_heed_by_name(options: dict[str, Any], unheeded: str) -> None:
    code, line = ended(tasks.compare, import_="nowhere", **options)
    assert (code, line.endswith(f"heeds --variants, --delta, --id alone; leave {unheeded} out")) == (2, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delta": "7"}, "delta 7 is out of range; it is a share above 0 and below 1"),
        ({"delta": "nan"}, "--delta 'nan' is not a finite number"),
        ({"id": "one"}, "runs/one already holds a campaign"),
        ({"id": "../one"}, "campaign id '../one'"),
        ({"variants": "v9"}, "unknown variant 'v9'"),
    ],
)
def test_an_imports_options_are_judged_before_anything_is_read(
    judged: Path, options: dict[str, Any], says: str
) -> None:
    code, line = ended(tasks.compare, import_="nowhere", **options)
    assert (code, says in line) == (2, True)


def test_an_import_of_an_older_lab_with_seed_and_window_in_its_plan_is_judged_as_before(judged: Path) -> None:
    older = Plan.from_json(read_json(judged / "plan.json"))
    write_json(judged / "plan.json", replace(older, imported=False).to_json())
    tasks.report(Context(), id="one")
    assert read_json(judged / "verdict.json")["variants"][0]["decision"] == "reject"
    assert "settle_s" not in (judged / "report.html").read_text()
