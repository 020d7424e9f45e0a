"""A malformed input ends a task with the documented exit code and one line, in the form that the user sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

import tasks
from app.records import write_json
from loadtest.plan import Plan

PLAN = Plan(seed=3, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2).to_json()
ESCAPE = "\x1b[2J"


def ended(task: Callable[..., Any], **options: Any) -> tuple[int, str]:
    with pytest.raises(Exit) as caught:
        task(Context(), **options)
    return caught.value.code, str(caught.value.message)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    return tmp_path


def write_plan(here: Path, text: str) -> None:
    (here / "runs" / "one" / "plan.json").write_text(text)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ("", 6),
        ("[" * 100_000, 6),
        ("[]", 9),
        ("{}", 9),
        (json.dumps(PLAN | {"schema": 99}), 9),
        (json.dumps(PLAN | {"blocks": "many"}), 9),
        (json.dumps(PLAN | {"controls": [1]}), 9),
        (json.dumps(PLAN | {"window": None}), 9),
        (json.dumps(PLAN | {f"x{ESCAPE}": 1}), 9),
    ],
    ids=["empty", "deep", "list", "no fields", "schema", "blocks", "controls", "window", "unknown field"],
)
def test_a_malformed_plan_ends_a_report(here: Path, plan: str, code: int) -> None:
    write_plan(here, plan)
    found, line = ended(tasks.report, id="one")
    assert (found, line.startswith("lab: "), line.isprintable()) == (code, True, True)


@pytest.mark.parametrize("manifest", [[], {}, {"simulated": True}, {"schema": 1, "kernels": [], "simulated": True}])
def test_a_malformed_manifest_ends_a_report(here: Path, manifest: Any) -> None:
    write_plan(here, json.dumps(PLAN))
    write_json(here / "runs" / "one" / "manifest.json", manifest)
    write_json(here / "runs" / "one" / "blocks" / "000" / "block.json", {"schema": 1, "void": ["x"], "attempt": 3})
    found, line = ended(tasks.report, id="one")
    assert (found in (6, 9), line.isprintable()) == (True, True)


def test_a_malformed_settings_file_ends_a_task_with_2(here: Path) -> None:
    (here / ".env").write_bytes(b"DECODE_TP=\x1b[2J\xff\n")
    assert ended(tasks.images) == (2, "lab: .env is not UTF-8 in line 1")


def test_a_malformed_foreign_result_ends_a_comparison_with_6(here: Path) -> None:
    (here / "import.csv").write_text("block,start,variant,file\n0,0,v1,x.json\n0,1,pinned,y.json\n")
    (here / "x.json").write_text('{"benchmarks": [{"requests": 7}]}')
    found, line = ended(tasks.compare, import_=".", variants="v1")
    assert (found, line.startswith("lab: x.json is malformed")) == (6, True)


@pytest.mark.parametrize("name", ["../../etc", "/etc/passwd", f"a{ESCAPE}", "", "a\nb", "x" * 5000])
def test_a_campaigns_name_cannot_lead_elsewhere(here: Path, name: str) -> None:
    found, line = ended(tasks.report, id=name)
    assert (found, line.isprintable()) == (2, True)
