from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tasks
from app.environment import ROOT
from app.task_help import HELP, option_help, shown_help


def test_help_is_written_for_the_tasks_that_there_are() -> None:
    assert set(HELP) == {task.replace("-", "_") for task in tasks.ns.task_names}


@pytest.mark.parametrize("task", sorted(tasks.ns.task_names))
def test_every_option_says_in_a_line_what_it_means(task: str) -> None:
    said = option_help(task)
    assert set(said) == {option.names[0] for option in tasks.ns[task].get_arguments(ignore_unknown_help=True)}
    assert [text for text in said.values() if not text or "\n" in text] == []


@pytest.mark.parametrize("task", sorted(tasks.ns.task_names))
def test_help_shows_the_defaults_of_the_signature_and_no_others(task: str) -> None:
    body = tasks.ns[task].body
    shown, parameters = shown_help(body), inspect.signature(body).parameters
    for name, said in HELP[body.__name__].items():
        default = parameters[name].default
        told = default not in ("", False, None, inspect.Parameter.empty)
        assert shown[name] == (f"{said} (default: {default})" if told else said)


@pytest.mark.parametrize("asked", [("check", "--help"), ("--help", "check"), ("check", "-h")])
def test_help_of_a_task_is_shown_wherever_it_is_asked_for(asked: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "invoke", *asked]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "(default: 120)" in " ".join(shown.stdout.split())
