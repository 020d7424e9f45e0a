"""docs/reference.md, written from the code: every task and option, setting, exit code and file format."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app import errors
from app.environment import ROOT
from app.project.reference_formats import formats
from app.report.markdown import table
from app.task_help import option_help, told_default

# Exit codes as tasks.py decides them: by kind of error, by a campaign's decision, and when interrupted.
Exits = tuple[Sequence[tuple[type[errors.LabError], int]], Mapping[str, int], int]
SETTINGS = ROOT / ".env.example"
HEAD = """# Reference

Written by `invoke docs` from the code; a test fails when it is stale. Every task runs as `./lab TASK` or, with `.venv`
active, as `invoke TASK`.
"""


def reference_page(collection: Any, exits: Exits) -> str:
    """The whole page. collection: Invoke's collection of the tasks."""
    parts = (HEAD, *_tasks(collection), *_settings(SETTINGS.read_text(encoding="utf-8")), *_exits(exits), *formats())
    return "\n".join(parts).rstrip("\n") + "\n"


def _tasks(collection: Any) -> Iterator[str]:
    yield "## Tasks\n"
    for name in sorted(collection.task_names):
        task = collection[name]
        yield f"### {name}\n\n{inspect.cleandoc(task.__doc__)}\n"
        said = option_help(name)
        rows = [_option(argument, said[argument.names[0]]) for argument in task.get_arguments(ignore_unknown_help=True)]
        if rows:
            yield table(("option", "default", "meaning"), rows) + "\n"


def _option(argument: Any, said: str) -> tuple[str, str, str]:
    flags = " ".join(f"`{'--' if len(name) > 1 else '-'}{name}`" for name in argument.names)
    default = told_default(argument.default)
    return flags, "required" if argument.positional else f"`{default}`" if default else "", said


def _settings(text: str) -> Iterator[str]:
    yield "## Settings\n\nOf the container stack; `.env` over these defaults, the environment over `.env`.\n"
    yield table(("settings and defaults", "meaning"), _setting_rows(text)) + "\n"


def _setting_rows(text: str) -> Iterator[tuple[str, str]]:
    # A comment speaks of the settings that follow it, up to the next comment or empty line.
    for group in re.findall(r"((?:^#.*\n)+)((?:^\w+=.*\n?)+)", text, re.MULTILINE):
        comment, settings = (part.splitlines() for part in group)
        yield (
            "<br>".join(f"`{line}`" for line in settings),
            " ".join(line.removeprefix("#").strip() for line in comment),
        )


def _exits(exits: Exits) -> Iterator[str]:
    by_error, by_decision, interrupted = exits
    yield "## Exit codes\n"
    rows = [
        ("0", "done, or every variant accepted"),
        ("1", "the command line itself: no such task or option, or one is missing"),
    ]
    rows += [(str(code), f"`{kind.__name__}`: {_sentence(kind)}") for kind, code in by_error]
    rows += [(str(code), f"decision `{decision}`") for decision, code in by_decision.items() if code]
    rows.append((str(interrupted), "interrupted by the user"))
    rows.sort(key=lambda row: int(row[0]))
    yield table(("code", "when"), rows) + "\n"


def _sentence(kind: type) -> str:
    said = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
    return said[:1].lower() + said[1:].rstrip(".")
