from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from app.environment import ROOT


def lab(*words: str, program: str = "app.program") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", program, *words]
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compar"], "No idea what 'compar' is! Did you mean compare? invoke --list lists the tasks\n"),
        (["compare", "--vraiants", "v1"], " Did you mean --variants? invoke --help compare lists its options\n"),
    ],
)
def test_plain_invoke_ends_an_unknown_word_with_what_was_meant(words: list[str], says: str) -> None:
    ended = lab(*words, program="invoke")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.endswith(says)


@pytest.mark.parametrize("option", ["--variant", "--variants"])
def test_compare_takes_the_option_under_either_name(option: str) -> None:
    assert lab("compare", option, "v9").stderr.startswith("lab: unknown variant 'v9'")


@pytest.mark.parametrize("program", ["app.program", "invoke"])
def test_an_option_that_an_import_cannot_heed_is_refused_though_it_was_typed_at_its_default(program: str) -> None:
    typed = ["--import", "nowhere", "--window", "60", "--blocks=8", "--variant", "", "--delta", "0.01"]
    ended = lab("compare", *typed, program=program)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.endswith("alone; leave --blocks, --window out\n")


def test_version_is_the_labs_own_with_its_commit_and_what_it_stands_on() -> None:
    own, parts = lab("--version").stdout.splitlines()
    assert re.fullmatch(r"decode-ab \d+\.\d+\.\d+, (commit [0-9a-f]{12}( and changes)?|no git checkout)", own)
    assert {"SGLang", "Python", "invoke", "locust"} <= {part.split()[0] for part in parts.split(", ")}


def test_known_words_run_as_invoke_runs_them() -> None:
    ended = lab("diff", "--variant", "v9")
    assert (ended.returncode, ended.stderr.startswith("lab: unknown variant 'v9'")) == (2, True)


@pytest.mark.parametrize("words", [(), ("help",)])
def test_no_word_and_help_list_the_tasks(words: tuple[str, ...]) -> None:
    assert "bench-kernel" in lab(*words).stdout


@pytest.mark.parametrize("words", [(), ("--list",), ("check", "--help"), ("--help", "demo"), ("--version",)])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_has_read_enough_of_help_ends_it_without_a_word(words: tuple[str, ...], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command, env = [sys.executable, "-m", "app.program", *words], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(writer, "w") as out:
        ended = subprocess.run(command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(("program", "called"), [("app.program", "./lab"), ("invoke", "inv[oke]")])
@pytest.mark.parametrize("words", [("check", "--help"), ("check", "-h"), ("demo", "--help"), ("--help", "check")])
def test_help_of_every_task_names_the_program_that_was_asked(program: str, called: str, words: tuple[str, ...]) -> None:
    asked = lab(*words, program=program)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith(f"Usage: {called} [--core-opts] ")


def test_the_lab_script_runs_this_program() -> None:
    assert (ROOT / "lab").read_text(encoding="utf-8").splitlines()[-1] == 'exec .venv/bin/python -m app.program "$@"'
