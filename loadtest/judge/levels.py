"""The verdict on each concurrency of a contrast, with what a reader needs to believe or doubt it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from loadtest.judge import power
from loadtest.judge.contrast import CellTable, Contrast, Metric, block_differences
from loadtest.judge.modes import Modes, find_modes, share_p, unclear
from loadtest.judge.power import percent
from loadtest.judge.rules import Outcomes, decide
from loadtest.judge.stats import Analysis, Floats, analyse, hodges_lehmann, sign_flip
from loadtest.plan import Plan

Outcome = Literal["better", "worse", "equivalent", "undecided", "invalid"]


@dataclass(frozen=True, slots=True)
class TwoModes:
    """Two clusters in the runs of a level: gap of their means, slow runs of each arm, p of equal shares (Fisher)."""

    gap_pct: float
    separation_sd: float
    control_slow: int
    control_runs: int
    variant_slow: int
    variant_runs: int
    share_p: float


@dataclass(frozen=True, slots=True)
class Level:
    """One concurrency: effects and intervals in percent of the control's output tokens per second; None where unknown.

    low, high: pointwise; simultaneous: over all levels of the variant. p: paired t; p_holm: over levels; p_sign_flip
    from 8 blocks. mde_pct: smallest effect found with power 0.9 in Holm's first step. blocks_to_decide: fewest blocks
    that would decide it, were the estimate and its sd true. hodges_lehmann_pct: second opinion; doubt: it differs by
    more than delta/2.
    """

    concurrency: int
    outcome: Outcome
    n_blocks: int
    control_tokens_per_s: float | None = None
    variant_tokens_per_s: float | None = None
    effect_pct: float | None = None
    low_pct: float | None = None
    high_pct: float | None = None
    simultaneous_low_pct: float | None = None
    simultaneous_high_pct: float | None = None
    p: float | None = None
    p_holm: float | None = None
    p_sign_flip: float | None = None
    p_noninferior: float | None = None
    p_equivalent: float | None = None
    noninferior: bool = False
    regressed: bool = False
    sd_pct: float | None = None
    mde_pct: float | None = None
    blocks_to_decide: int | None = None
    hodges_lehmann_pct: float | None = None
    doubt: bool = False
    differences: tuple[float, ...] = ()
    modes: TwoModes | None = None


@dataclass(frozen=True, slots=True)
class Secondary:
    """Change of a latency figure at one concurrency, pointwise interval, no verdict; positive is slower."""

    metric: Metric
    concurrency: int
    effect_pct: float
    low_pct: float
    high_pct: float


def judge_levels(plan: Plan, contrast: Contrast, withheld: bool) -> tuple[tuple[Level, ...], bool, bool]:
    """Levels, and whether the variant is accepted or rejected; withheld: no claim at all, intervals only."""
    position = contrast.position if plan.design == "single" else None
    analysis = analyse(contrast.differences, position, plan.alpha, plan.delta)
    modes = find_modes(contrast.log_rate)
    clouded = unclear(modes, analysis.simultaneous_low, analysis.simultaneous_high)
    rules = decide(analysis, clouded | withheld, plan.alpha, plan.delta)
    flips = sign_flip(contrast.differences) if plan.design == "mirrored" else None
    levels = tuple(_level(plan, contrast, analysis, rules, modes, flips, i) for i in range(len(plan.concurrencies)))
    return levels, bool(rules.accept), bool(rules.reject)


def unjudged_levels(plan: Plan, contrast: Contrast) -> tuple[Level, ...]:
    """Levels of an invalid contrast: block differences are shown, nothing is inferred."""
    d = contrast.differences
    return tuple(
        Level(c, "invalid", len(contrast.blocks), differences=tuple(percent(x) for x in d[:, i]))
        for i, c in enumerate(plan.concurrencies)
    )


def secondary(plan: Plan, table: CellTable, contrast: Contrast) -> tuple[Secondary, ...]:
    """Latency figures beside the verdict; a figure missing in any start is left out."""
    found = []
    position = contrast.position if plan.design == "single" else None
    for metric in get_args(Metric):
        if metric == "tokens_per_s":
            continue
        d = block_differences(table.log_metric(contrast, metric))
        for i, concurrency in enumerate(plan.concurrencies):
            if np.isfinite(d[:, i]).all():
                a = analyse(d[:, [i]], position, plan.alpha, plan.delta)
                found.append(Secondary(metric, concurrency, *(percent(x[0]) for x in (a.fit.effect, a.low, a.high))))
    return tuple(found)


def _level(
    plan: Plan, contrast: Contrast, a: Analysis, rules: Outcomes, modes: Modes, flips: Floats | None, i: int
) -> Level:
    effect, sd = float(a.fit.effect[i]), float(a.fit.sd[i])
    second = float(hodges_lehmann(a.fit.residuals)[i]) + effect
    blocks, lost = len(contrast.blocks), len(contrast.blocks) - a.fit.df
    # Unequal orders cost precision: count the blocks that a balanced campaign would need for it.
    scaled_sd = sd * (a.fit.leverage * blocks) ** 0.5
    count = len(plan.concurrencies)
    rates = np.exp(contrast.log_rate[:, :, :, i].mean(axis=(0, 2)))
    return Level(
        concurrency=plan.concurrencies[i],
        outcome=_outcome(rules, i),
        n_blocks=blocks,
        control_tokens_per_s=float(rates[0]),
        variant_tokens_per_s=float(rates[1]),
        effect_pct=percent(effect),
        low_pct=percent(float(a.low[i])),
        high_pct=percent(float(a.high[i])),
        simultaneous_low_pct=percent(float(a.simultaneous_low[i])),
        simultaneous_high_pct=percent(float(a.simultaneous_high[i])),
        p=float(a.p[i]),
        p_holm=float(a.p_holm[i]),
        p_sign_flip=None if flips is None else float(flips[i]),
        p_noninferior=float(a.p_noninferior[i]),
        p_equivalent=float(a.p_equivalent[i]),
        noninferior=bool(rules.noninferior[i]),
        regressed=bool(rules.regressed[i]),
        sd_pct=100 * sd,
        mde_pct=percent(power.detectable_effect(scaled_sd, blocks, lost, plan.alpha, count)),
        blocks_to_decide=_blocks_to_decide(plan, effect, scaled_sd, lost),
        hodges_lehmann_pct=percent(second),
        doubt=abs(second - effect) > plan.delta / 2,
        differences=tuple(percent(float(x)) for x in contrast.differences[:, i]),
        modes=_two_modes(modes, i) if modes.bimodal[i] else None,
    )


def _outcome(rules: Outcomes, i: int) -> Outcome:
    if rules.better[i]:
        return "better"
    if rules.worse[i]:
        return "worse"
    return "equivalent" if rules.equivalent[i] else "undecided"


def _blocks_to_decide(plan: Plan, effect: float, sd: float, lost: int) -> int | None:
    ways = (
        power.blocks_for_difference(effect, sd, lost, plan.alpha, len(plan.concurrencies)),
        power.blocks_for_equivalence(effect, sd, lost, plan.alpha, plan.delta),
    )
    return min((n for n in ways if n is not None), default=None)


def _two_modes(modes: Modes, i: int) -> TwoModes:
    slow = modes.slow[..., i]
    (control, variant), runs = slow.sum(axis=1), slow.shape[1]
    return TwoModes(
        percent(-float(modes.gap[i])), float(modes.separation[i]), int(control), runs, int(variant), runs, share_p(slow)
    )
