"""Reasons that void a block in every attempt: which they are, and the option of the plan that mends each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from app.campaign.runs import RunFolder
from loadtest.cells import Cell
from loadtest.measure.reconcile import LATE, NOT_ALONE, SATURATED, answer_tokens
from loadtest.plan import Plan

# A machine may become idle again while the campaign goes on.
_PASSING = (LATE, SATURATED, "late reads")
_START = re.compile(r"start-\d+-[\w.-]+?(?= C=\d+: |: )")
_NUMBER = re.compile(r"(?<!C=)\b\d[\d.]*(?:,\d{3})*")
_ENOUGH = re.compile(r"at least ([\d,]+) tokens")


def lasting_reasons(folder: RunFolder, block: int) -> dict[str, str]:
    """What every attempt of a block was void for, whichever start and figures it was seen with; empty of a sound block.

    Each kind, in which starts and figures are left out, has the reason that the last attempt gave. A busy machine is no
    such reason.
    """
    last = folder.block_record(block)
    if last is None:
        return {}
    before = [_kinds(record["void"]) for record in folder.void_attempts() if record["block"] == block]
    return {kind: said for kind, said in _kinds(last["void"]).items() if all(kind in kinds for kinds in before)}


def too_short_answers(cells: Iterable[Cell]) -> bool:
    """Whether no level of a start had a window of decode alone, and no failed or short request is to blame."""
    found = dict[int, bool]()
    for c in cells:
        too_short = not c.failures and not c.short_outputs and any(NOT_ALONE in reason for reason in c.reasons)
        found[c.start] = found.get(c.start, True) and too_short
    return any(found.values())


def remedy(reasons: Iterable[str], plan: Plan, cells: Sequence[Cell]) -> str:
    """The option that mends the surest of the reasons that one can mend, with figures of the cells; else empty."""
    given = [*reasons]
    for pattern, mend in _REMEDIES:
        if any(pattern in reason for reason in given):
            return mend(plan, [c for c in cells if any(pattern in reason for reason in c.reasons)])
    return ""


def _kinds(reasons: Iterable[str]) -> dict[str, str]:
    kept = [reason for reason in reasons if not any(passing in reason for passing in _PASSING)]
    return {_NUMBER.sub("#", _START.sub("", reason)).strip(" :"): reason for reason in reversed(kept)}


def _longer_answers(plan: Plan, cells: Sequence[Cell]) -> str:
    """In windows of decode alone: answers that outlast settling and window."""
    rules, lengths = plan.window, plan.lengths
    told = [int(found[1].replace(",", "")) for c in cells for r in c.reasons if (found := _ENOUGH.search(r))]
    paces_ms = [c.tpot_p50_ms for c in cells if c.tpot_p50_ms > 0]
    told = told or [answer_tokens((rules.settle_s + rules.window_s) * 1e3, pace_ms) for pace_ms in paces_ms]
    if not told:
        return "ask for longer answers in --lengths, or a shorter --settle and --window"
    if (tokens := max(told)) <= lengths.output_tokens:
        return ""
    return (
        f"answers of {lengths.output_tokens:,} tokens end before --settle {rules.settle_s:g} and --window "
        f"{rules.window_s:g} do; ask for {tokens:,} (--lengths {lengths.prompt_tokens},{tokens}) or shorten these two"
    )


def _longer_window(plan: Plan, cells: Sequence[Cell]) -> str:
    if plan.window.decode_only:
        return _longer_answers(plan, cells)
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


def _steadier(plan: Plan, _: Sequence[Cell]) -> str:
    return "make --settle or --window longer" + (", and the answers in --lengths" if plan.window.decode_only else "")


def _fixed(text: str) -> Callable[[Plan, Sequence[Cell]], str]:
    return lambda _, __: text


# By what the reason says, the surest first.
_REMEDIES: tuple[tuple[str, Callable[[Plan, Sequence[Cell]], str]], ...] = (
    (NOT_ALONE, _longer_answers),
    ("no request began or ended", _longer_window),
    ("a stream stood still", _longer_window),
    ("not filled in", _fixed("leave that level out of --concurrency, or ask for shorter prompts in --lengths")),
    ("decode queues", _fixed("leave that level out of --concurrency, or let decode serve more at once")),
    ("not steady", _steadier),
    ("decode batch fell", _fixed("make --settle longer, or the answers in --lengths")),
    ("requests in flight on average", _fixed("ask for longer answers in --lengths")),
)
