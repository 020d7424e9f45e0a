from __future__ import annotations

import json
import re
from dataclasses import fields

import tasks
from app.environment import ROOT
from app.project.documentation import REFERENCE
from app.project.reference import reference_page
from app.settings import Deployment
from loadtest.judge.verdict import SCHEMA_FILE

EXITS = (tasks.ERROR_CODES, tasks.DECISION_CODES, tasks.INTERRUPTED)


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", REFERENCE.read_text(encoding="utf-8"), re.M | re.S)
    assert found
    return found.group(1)


def test_the_reference_is_what_the_code_says_now() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference_page(tasks.ns, EXITS), "stale; run: invoke docs"


def test_every_task_has_its_heading() -> None:
    assert re.findall(r"^### (.+)$", section("Tasks"), re.M) == sorted(tasks.ns.task_names)


def test_every_setting_is_named() -> None:
    named = re.findall(r"`(\w+)=[^`]*`", section("Settings"))
    assert sorted(named) == sorted(f.name.upper() for f in fields(Deployment))


def test_every_exit_code_stands_here_and_those_of_an_outcome_in_the_readme() -> None:
    # 1 is Invoke's own, for a command line that it cannot read.
    codes = {0, 1, *(code for _, code in tasks.ERROR_CODES), *tasks.DECISION_CODES.values()}
    readme = re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert {int(code) for code in readme} == codes
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.M)} == codes | {130}


def test_every_field_of_a_verdict_is_explained_or_named() -> None:
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    parts = (schema, *schema["$defs"].values())
    named = re.findall(r"^\| `(\w+)` \|", section("File formats"), re.M)
    assert {key for part in parts for key in part["properties"]} <= set(named)


def test_every_row_of_every_table_has_its_columns() -> None:
    for block in re.findall(r"(?:^\|.*\|\n)+", REFERENCE.read_text(encoding="utf-8"), re.M):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1, block
