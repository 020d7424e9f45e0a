from __future__ import annotations

import pytest

import tasks
from app.task_help import HELP, option_help


def test_help_is_written_for_the_tasks_that_there_are() -> None:
    assert set(HELP) == {task.replace("-", "_") for task in tasks.ns.task_names}


@pytest.mark.parametrize("task", sorted(tasks.ns.task_names))
def test_every_option_says_in_a_line_what_it_means(task: str) -> None:
    said = option_help(task)
    assert set(said) == {option.names[0] for option in tasks.ns[task].get_arguments(ignore_unknown_help=True)}
    assert [text for text in said.values() if not text or "\n" in text] == []
