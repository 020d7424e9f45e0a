from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from app.command import NOT_FOUND, Ran, remembering, run_command


def test_a_missing_program_is_an_answer() -> None:
    assert run_command(["no-such-program-here"]).code == NOT_FOUND


def test_a_command_gives_both_streams_and_its_code() -> None:
    ran = run_command([sys.executable, "-c", "import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)"])
    assert (ran.code, ran.out, ran.said) == (3, "out\n", "why")


def test_a_command_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.command.TIMEOUT_S", 0.2)
    assert run_command(["sleep", "60"]) == Ran(124, err="sleep did not answer within 0 s")


def test_a_question_is_asked_once() -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> Ran:
        asked.append(argv)
        return Ran(0, "x")

    ask = remembering(run)
    assert [ask(["a"]), ask(("a",)), ask(["b"])] == [Ran(0, "x")] * 3
    assert len(asked) == 2
