"""How a task ends: with the exit code of its outcome, and with one line on standard error for a fault."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.main import program
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

from app.errors import LabError, UsageError
from app.program import TYPED, Lab
from app.task_help import shown_help

Codes = Sequence[tuple[type[LabError], int]]


class _WholeNumber(Argument):
    """An option that takes a whole number, and keeps another word for its task to refuse; Invoke's own ends."""

    def set_value(self, value: Any, cast: bool = True) -> None:
        try:
            super().set_value(value, cast)
        except ValueError:
            super().set_value(value, cast=False)


class EndingTask(Task[Any]):
    """Invoke's task whose options of whole numbers are told from other words; --variant is --variants too."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's arguments in their order."""
        found = super().get_arguments(ignore_unknown_help)
        return [_whole_number(a) if a.kind is int else _with_alias(a) for a in found]


def ending_task(body: Callable[..., int | None], codes: Codes, interrupted: int) -> Task[Any]:
    """An Invoke task of a body that gives an exit code or none.

    codes: of a fault, by the first class that matches; interrupted: the code where the user ended it.
    """

    @functools.wraps(body)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            _refuse_words(body, options)
            code = body(*args, **options)
        except LabError as fault:
            raise Exit(f"lab: {fault}", next(code for kind, code in codes if isinstance(fault, kind))) from fault
        except KeyboardInterrupt as e:
            # A campaign says what it keeps, and by which command it goes on.
            kept = e.args or ("what was finished is kept",)
            raise Exit("; ".join(("lab: interrupted", *kept)), interrupted) from e
        if code:
            raise Exit(code=code)

    return cast("Task[Any]", task(wrapped, klass=EndingTask, help=shown_help(body)))


def asked(given: Task[Any], options: Mapping[str, Any], context: Context) -> list[str]:
    """Options of a task that were typed, or stand at another value than their default, as the command line has them."""
    parameters = inspect.signature(given.body).parameters
    typed = context.config.get(TYPED, {}).get(given.name, ())
    return [_flag(name) for name, value in options.items() if name in typed or value != parameters[name].default]


def collected(tasks: Iterable[EndingTask]) -> Collection:
    """The tasks as Invoke loads them; plain `invoke`, which loads no program of ours, gets the hints of `./lab`."""
    # Its run is under way, and none of the classes it lets one choose (loader, executor, config) sees an unknown word.
    program.__class__ = Lab
    return Collection(*tasks)


def _flag(parameter: str) -> str:
    return f"--{parameter.strip('_').replace('_', '-')}"


def _refuse_words(body: Callable[..., Any], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(body).parameters
    for name, value in options.items():
        default = parameters[name].default
        if type(default) is int and isinstance(value, str):
            raise UsageError(f"{_flag(name)} {value!r} is no whole number, such as {default}")


def _with_alias(a: Argument) -> Argument:
    if a.names[0] != "variants":
        return a
    return Argument(names=(*a.names, "variant"), default=a.default, help=a.help, attr_name=a.attr_name)


def _whole_number(a: Argument) -> Argument:
    return _WholeNumber(names=a.names, kind=int, default=a.default, help=a.help, attr_name=a.attr_name)
