"""Reasons that void a block in every attempt: which they are, and the option of the plan that mends each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from app.campaign.runs import RunFolder
from loadtest.cells import Cell
from loadtest.measure.reconcile import LATE, SATURATED
from loadtest.plan import Plan

# A machine may become idle again while the campaign goes on.
_PASSING = (LATE, SATURATED, "late reads")
_START = re.compile(r"start-\d+-[\w.-]+?(?= C=\d+: |: )")
_NUMBER = re.compile(r"(?<!C=)\b\d[\d.]*")


def lasting_reasons(folder: RunFolder, block: int) -> frozenset[str]:
    """What every attempt of a block was void for, whichever start and figures it was seen with; empty of a sound block.

    A busy machine is no such reason.
    """
    last = folder.block_record(block)
    if last is None:
        return frozenset()
    attempts = [last, *(record for record in folder.void_attempts() if record["block"] == block)]
    return frozenset.intersection(*(_kinds(record["void"]) for record in attempts))


def remedy(reasons: Iterable[str], plan: Plan, cells: Sequence[Cell]) -> str:
    """The option that mends the first of the reasons that one can mend, with figures of the cells; else empty."""
    for reason in reasons:
        for pattern, mend in _REMEDIES:
            if pattern in reason:
                return mend(plan, [c for c in cells if f"C={c.concurrency}: " in reason])
    return ""


def _kinds(reasons: Iterable[str]) -> frozenset[str]:
    kept = (reason for reason in reasons if not any(passing in reason for passing in _PASSING))
    return frozenset(_NUMBER.sub("#", _START.sub("", reason)).strip(" :") for reason in kept)


def _longer_window(plan: Plan, cells: Sequence[Cell]) -> str:
    steps_ms = [c.itl_p50_ms for c in cells if c.itl_p50_ms > 0]
    if not steps_ms:
        return f"--window {plan.window.window_s:g} is too short; make it outlast a request"
    step_ms = median(steps_ms)
    request_s = plan.lengths.output_tokens * step_ms / 1e3
    if request_s <= plan.window.window_s:
        return ""
    return (
        f"a request takes {request_s:.2g} s ({plan.lengths.output_tokens} tokens, {step_ms:.3g} ms each), "
        f"--window is {plan.window.window_s:g} s; make it longer, or the answers in --lengths shorter"
    )


def _fixed(text: str) -> Callable[[Plan, Sequence[Cell]], str]:
    return lambda _, __: text


# By what the reason says, the surest first.
_REMEDIES: tuple[tuple[str, Callable[[Plan, Sequence[Cell]], str]], ...] = (
    ("no request began or ended", _longer_window),
    ("a stream stood still", _longer_window),
    ("in a window of decode alone", _fixed("ask for longer answers in --lengths, or a shorter --settle and --window")),
    ("not filled in", _fixed("leave that level out of --concurrency, or ask for shorter prompts in --lengths")),
    ("decode queues", _fixed("leave that level out of --concurrency, or let decode serve more at once")),
    ("not steady", _fixed("make --settle or --window longer")),
    ("decode batch fell", _fixed("make --settle longer, or the answers in --lengths")),
    ("requests in flight on average", _fixed("ask for longer answers in --lengths")),
)
