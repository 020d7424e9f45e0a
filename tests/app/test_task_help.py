from __future__ import annotations

import pytest

import tasks
from app.task_help import HELP


def named(task: str) -> str:
    return task.replace("-", "_")


def test_help_is_written_for_the_tasks_that_there_are() -> None:
    assert set(HELP) == {named(task) for task in tasks.ns.task_names}


@pytest.mark.parametrize("task", sorted(tasks.ns.task_names))
def test_every_option_says_in_a_line_what_it_means(task: str) -> None:
    options = tasks.ns[task].get_arguments()
    silent = [option.name for option in options if not option.help or "\n" in option.help]
    assert silent == []
