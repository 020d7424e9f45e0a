from __future__ import annotations

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from app.ending import asked, ending_task
from app.errors import LabError, PatchError, UsageError, VariantError
from app.program import TYPED

CODES = ((VariantError, 3), (UsageError, 4), (LabError, 5))


def ended(outcome: int | BaseException | None) -> Exit:
    """How a task ends whose body gives, or is ended by, the outcome."""

    def down(_: Context) -> int | None:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    with pytest.raises(Exit) as end:
        ending_task(down, CODES, 9)(Context())
    return end.value


@pytest.mark.parametrize(("fault", "code"), [(UsageError("no such\nthing"), 4), (PatchError("no such\nthing"), 5)])
def test_a_fault_ends_in_one_line_with_the_code_of_the_first_class_that_matches(fault: LabError, code: int) -> None:
    end = ended(fault)
    assert (end.code, end.message) == (code, r"lab: no such\nthing")


def test_an_interruption_has_a_code_of_its_own_and_says_what_goes_on() -> None:
    end = ended(KeyboardInterrupt("go on with this"))
    assert (end.code, end.message) == (9, "lab: interrupted; go on with this")


def test_an_interruption_of_anything_else_says_that_what_was_finished_is_kept() -> None:
    assert ended(KeyboardInterrupt()).message == "lab: interrupted; what was finished is kept"


def test_a_code_is_passed_on_without_a_word() -> None:
    end = ended(7)
    assert (end.code, end.message) == (7, None)


@pytest.mark.parametrize("outcome", [0, None])
def test_a_task_that_is_done_raises_nothing(outcome: int | None) -> None:
    def down(_: Context) -> int | None:
        return outcome

    assert ending_task(down, CODES, 9)(Context()) is None


def test_another_exception_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError())


def test_options_that_were_typed_or_are_off_their_defaults_are_named_as_on_the_command_line() -> None:
    def down(_: Context, import_: str = "", time_scale: str = "1", blocks: int = 8) -> int | None:
        return None

    task, context = ending_task(down, CODES, 9), Context()
    assert asked(task, {"import_": "x", "time_scale": "1", "blocks": 8}, context) == ["--import"]
    assert asked(task, {"import_": "", "time_scale": "2", "blocks": 9}, context) == ["--time-scale", "--blocks"]
    context.config.update({TYPED: {"down": ["time_scale"], "up": ["blocks"]}})
    assert asked(task, {"import_": "", "time_scale": "1", "blocks": 8}, context) == ["--time-scale"]
