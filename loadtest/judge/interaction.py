"""Statements over all concurrencies at once: the mean effect, and whether the effect depends on concurrency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from loadtest.judge.power import percent
from loadtest.judge.stats import Floats, fit_effect, two_sided


@dataclass(frozen=True, slots=True)
class Estimate:
    """An effect in percent with its interval at 1 - alpha and the two-sided p value of none."""

    effect_pct: float
    low_pct: float
    high_pct: float
    p: float


@dataclass(frozen=True, slots=True)
class Interaction:
    """How the effect changes with concurrency; each contrast is taken inside the block, so shared noise cancels.

    per_doubling: slope over log2 C, in percent a doubling. high_less_low: ratio of the effects at the highest and at
    the lowest concurrency. shape: rises, falls or flat (none shown) with C, from the slope's p. crossover: worse at the
    lowest and better at the highest, both by Holm.
    """

    per_doubling: Estimate
    high_less_low: Estimate
    lowest: int
    highest: int
    shape: str
    crossover: bool


def overall(differences: Floats, position: Floats, alpha: float) -> Estimate:
    """Mean effect over the concurrencies; differences is (blocks, levels)."""
    return _estimate(differences.mean(axis=1), position, alpha)


def interaction(
    differences: Floats, position: Floats, levels: tuple[int, ...], alpha: float, outcomes: list[str]
) -> Interaction | None:
    """Tests the dependence of the effect on concurrency; None for a single level."""
    if len(levels) < 2:
        return None
    x = np.log2(levels) - np.log2(levels).mean()
    slope = _estimate(differences @ x / (x @ x), position, alpha)
    ends = _estimate(differences[:, -1] - differences[:, 0], position, alpha)
    shape = "flat" if slope.p > alpha else "rises" if slope.effect_pct > 0 else "falls"
    crossover = outcomes[0] == "worse" and outcomes[-1] == "better"
    return Interaction(slope, ends, levels[0], levels[-1], shape, crossover)


def _estimate(values: Floats, position: Floats, alpha: float) -> Estimate:
    f = fit_effect(values[:, None], position)
    half = float(stats.t.ppf(1 - alpha / 2, f.df)) * float(f.se[0])
    middle = float(f.effect[0])
    return Estimate(percent(middle), percent(middle - half), percent(middle + half), float(two_sided(f)[0]))
