from __future__ import annotations

import subprocess
import sys

import pytest

from app.environment import ROOT


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.program", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compar"], "No idea what 'compar' is! Did you mean compare? ./lab alone lists the tasks\n"),
        (["xyz"], "No idea what 'xyz' is! ./lab alone lists the tasks\n"),
        (["diff", "--varaint", "v1"], " Did you mean --variant? ./lab --help diff lists its options\n"),
        (["diff", "--variant"], "needed value and was not given one!\n"),
    ],
)
def test_an_unknown_word_ends_with_what_was_meant(words: list[str], says: str) -> None:
    ended = lab(*words)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.endswith(says)


def test_known_words_run_as_invoke_runs_them() -> None:
    ended = lab("diff", "--variant", "v9")
    assert (ended.returncode, ended.stderr.startswith("lab: unknown variant 'v9'")) == (2, True)


@pytest.mark.parametrize("words", [(), ("help",)])
def test_no_word_and_help_list_the_tasks(words: tuple[str, ...]) -> None:
    assert "bench-kernel" in lab(*words).stdout


def test_the_lab_script_runs_this_program() -> None:
    assert (ROOT / "lab").read_text(encoding="utf-8").splitlines()[-1] == 'exec .venv/bin/python -m app.program "$@"'
