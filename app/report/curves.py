"""The campaign's own question: does throughput keep rising with concurrency, and where does it bend?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.errors import UsageError
from app.report.campaign_view import CampaignView
from app.report.evidence import Grid
from app.report.wording import interval, listed, number, signed
from loadtest.judge.slope import MIN_BLOCKS, Change, ThroughputCurve, throughput_curve


def throughput_curves(view: CampaignView, question: Sequence[int] | None = None) -> tuple[ThroughputCurve, ...]:
    """A curve per variant with blocks enough; UsageError for a question about concurrencies that were not measured."""
    if question is not None and not set(question) <= set(view.plan.concurrencies):
        known = ", ".join(map(str, view.plan.concurrencies))
        raise UsageError(f"slope between {', '.join(map(str, question))}: the campaign measured {known}")
    if len(view.plan.concurrencies) < 2:
        return ()
    blocks = {v: _usable_blocks(view, v) for v in view.variants}
    return tuple(throughput_curve(view.plan, view.cells, v, question) for v in view.variants if blocks[v] >= MIN_BLOCKS)


def _usable_blocks(view: CampaignView, variant: str) -> int:
    cells = [c for c in view.cells if c.variant == variant]
    void = {c.block for c in cells if not c.valid}
    levels = {b: {c.concurrency for c in cells if c.block == b} for b in {c.block for c in cells} - void}
    return sum(found == set(view.plan.concurrencies) for found in levels.values())


def answer_grid(curves: Sequence[ThroughputCurve]) -> Grid:
    """The answer per variant, with its interval."""
    asked = f"C={curves[0].answer.start} to {curves[0].answer.end}" if curves else ""
    numeric = (f"{asked}, %", "tok/s per added stream, least squares")
    rows = tuple((c.variant, c.answer.trend, _change(c.answer), _per_stream(c), _knee(c)) for c in curves)
    return Grid("Does throughput keep rising?", ("variant", asked, *numeric, "knee"), rows, frozenset(numeric))


def step_grid(curves: Sequence[ThroughputCurve]) -> Grid:
    """The change from each concurrency to the next, a column a variant."""
    names = tuple(c.variant for c in curves)
    rows = tuple(
        (f"{steps[0].start} to {steps[0].end}", *(f"{s.trend} {_change(s)}" for s in steps))
        for steps in zip(*(c.steps for c in curves), strict=True)
    )
    return Grid("Change of tok/s from one concurrency to the next, %", ("C", *names), rows, frozenset(names))


def _change(change: Change) -> str:
    return f"{signed(change.change_pct)} ({interval(change.low_pct, change.high_pct)})"


def _per_stream(curve: ThroughputCurve) -> str:
    slope, low, high = curve.per_stream
    return f"{signed(slope, 2)} ({interval(low, high, 2)})"


def _knee(curve: ThroughputCurve) -> str:
    return f"C={curve.knee}" if curve.knee else f"none up to {max(curve.tokens_per_s)}"


def answers(view: CampaignView, curves: Iterable[ThroughputCurve]) -> tuple[str, ...]:
    """One sentence a variant: 'v1 rises from C=48 to 96: +39.9 (+39.2 to +40.6) %, ...; knee at C=80'.

    While blocks of the plan are missing it says so far, since nothing is claimed before there is a verdict.
    """
    so_far = "so far, not a verdict: " if view.verdict.get("interim") else ""
    return tuple(f"{so_far}{_answer(c)}" for c in curves)


def unanswered(view: CampaignView, curves: Iterable[ThroughputCurve]) -> str:
    """Why some variants have no curve, in a sentence; empty where all have one."""
    answered = {curve.variant for curve in curves}
    without = [variant for variant in view.variants if variant not in answered]
    if not without:
        return ""
    needs = f"{MIN_BLOCKS} usable blocks are needed" if len(view.plan.concurrencies) > 1 else "one level has no slope"
    return f"slope not answered for {listed(without)}: {needs}"


def _answer(curve: ThroughputCurve) -> str:
    a = curve.answer
    words = {"rises": "rises", "falls": "falls", "flat": "is flat", "undecided": "may rise or fall"}[a.trend]
    bend = f"knee at C={curve.knee}" if curve.knee else f"no knee up to C={max(curve.tokens_per_s)}"
    rate = number(abs(curve.per_stream[0]), 2)
    return (
        f"{curve.variant} {words} from C={a.start} to {a.end}: {_change(a)} %, by least squares {rate} tok/s "
        f"{'less' if curve.per_stream[0] < 0 else 'more'} per added stream; {bend}"
    )
