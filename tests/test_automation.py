from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks
from app.project.checks import CHECKS

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow: Path) -> list[str]:
    return [step["run"] for job in read(workflow)["jobs"].values() for step in job["steps"] if "run" in step]


def test_commit_hooks_run_what_the_test_command_runs() -> None:
    entries = {
        hook["id"]: shlex.split(hook["entry"]) for hook in read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    }
    assert entries == {name: [".venv/bin/python", *arguments] for name, arguments in CHECKS}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_calls_tasks_and_options_that_exist(workflow: Path) -> None:
    called = [shlex.split(said)[1:] for said in commands(workflow) if said.startswith("./lab ")]
    assert called
    for name, *words in called:
        known = {option for argument in tasks.ns[name].get_arguments() for option in argument.names}
        assert {word.lstrip("-") for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_may_only_read_the_repository_and_ends(workflow: Path) -> None:
    told = read(workflow)
    assert told["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in told["jobs"].values())


def test_no_pull_request_reaches_a_machine_of_your_own() -> None:
    own = [path for path in WORKFLOWS if re.search(r"self-hosted", path.read_text(encoding="utf-8"))]
    assert [path.name for path in own] == ["gpu.yml"]
    # YAML 1.1 reads the key `on` as true.
    assert set(read(own[0])[True]) == {"workflow_dispatch", "push"}
