"""The lab's tasks: parse, call, print. Exit codes are decided here and nowhere else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from app import errors

# A campaign's code is that of its gravest decision, gravest first.
DECISION_CODES = {"invalid": 9, "reject": 7, "undecided": 8, "same-code": 8, "accept": 0}
# The first class that matches counts.
ERROR_CODES: tuple[tuple[type[errors.LabError], int], ...] = (
    (errors.UsageError, 2),
    (errors.GateError, 3),
    (errors.NotReadyError, 4),
    (errors.ProofError, 5),
    (errors.LoadError, 6),
    (errors.InvalidCampaignError, 9),
)
INTERRUPTED = 130


def lab_task(body: Callable[..., int | None]) -> Task[Any]:
    """An Invoke task that ends with the exit code of its outcome, and with one line for a fault."""

    @functools.wraps(body)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            code = body(*args, **options)
        except errors.LabError as e:
            raise Exit(f"lab: {e}", next((c for kind, c in ERROR_CODES if isinstance(e, kind)), 2)) from e
        except KeyboardInterrupt as e:
            raise Exit("lab: interrupted; what was finished is kept", INTERRUPTED) from e
        if code:
            raise Exit(code=code)

    return cast("Task[Any]", task(wrapped))


@lab_task
def demo(_: Context, seed: str = "", quiet: bool = False) -> None:
    """A real campaign in small on the simulated engine: baseline, pinned, v1, v2; under five minutes."""
    from app.console import show_demo

    show_demo(seed, quiet)


@lab_task
def test(_: Context, select: str = "") -> int:
    """All tests that this machine can run, with lint and types; --select narrows to matching test names."""
    from app.checks import run_checks

    return run_checks(select)


@lab_task
def variants(_: Context, json: bool = False) -> None:
    """The variants, their controls, what they change and what is predicted of them."""
    from app.console import show_variants

    show_variants(json)


@lab_task
def diff(_: Context, variant: str, release: str = "") -> None:
    """The unified diff that a variant makes to SGLang's pristine kernel file."""
    from app.console import show_diff

    show_diff(variant, release)


@lab_task
def check(
    _: Context,
    variant: str,
    arch: int = 120,
    triton: str = "",
    model: str = "",
    tp: int = 4,
    allow_noop: bool = False,
    json: bool = False,
) -> int:
    """The gate: compiles a variant for an arch with no GPU and says what would go wrong."""
    from app.environment import ensure

    ensure("gate")
    from app.gate import run_check

    return run_check(
        variant, arch=arch, triton=triton or None, model=model or None, tp=tp, allow_noop=allow_noop, as_json=json
    )


@lab_task
def compare(
    _: Context,
    variants: str = "",
    concurrency: str = "1,8,48,64,80,96",
    blocks: int = 8,
    design: str = "mirrored",
    runtime: str = "local",
    engine: str = "sim",
    time_scale: str = "1",
    lengths: str = "1024,256",
    settle: str = "10",
    window: str = "60",
    delta: str = "0.01",
    seed: str = "",
    id: str = "",
    resume: str = "",
    quiet: bool = False,
) -> int:
    """Measures variants against their controls and judges them; --resume ID goes on with a campaign."""
    from app.console import compare_from_options, decisions

    options = {k: v for k, v in locals().items() if k not in ("_", "compare_from_options", "decisions")}
    return gravest(decisions(compare_from_options(**options)))


@lab_task
def report(_: Context, id: str = "latest") -> None:
    """Judges a campaign's rows again and writes its tables, report and summary anew."""
    from app.console import show_campaign

    show_campaign(id)


def gravest(decisions: list[str]) -> int:
    """The exit code of a campaign: that of its gravest decision."""
    return next((code for decision, code in DECISION_CODES.items() if decision in decisions), 0)


ns = Collection(demo, test, variants, diff, check, compare, report)
