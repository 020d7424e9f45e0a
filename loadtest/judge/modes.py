"""Two modes in the runs of a level: starts that fall into two clusters, as when an autotuner or a clock is drawn anew.

A level counts as bimodal when its best two-cluster split stands further apart than a limit in within-cluster standard
deviations; the limit is larger for fewer starts, so that one-mode noise is called bimodal in about 1 % of campaigns.
Fewer blocks than a verdict needs show no modes: one slow start of three is weather.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.stats import Floats

# Limits on the separation by number of starts (both arms), from one-mode Gaussian campaigns of six levels.
STARTS = (8.0, 12.0, 16.0, 24.0)
LIMITS = (7.4, 6.4, 5.9, 5.0)
# A slow start is slow at all its levels: once one level passes its limit, the others need only this share of it.
FOLLOWING = 0.7


@dataclass(frozen=True, slots=True)
class Modes:
    """Per level (...): separation in within-cluster sds, whether it passes the limit, gap of means in log units.

    slow (..., 2, starts per arm, levels) marks the runs of the lower cluster; meaningful only where bimodal.
    """

    bimodal: NDArray[np.bool_]
    separation: Floats
    gap: Floats
    slow: NDArray[np.bool_]


def find_modes(log_rate: Floats) -> Modes:
    """Looks for two clusters in log rates of shape (..., blocks, arms, repeats, levels).

    Each arm is first shifted to its fastest run, so that a true difference between the arms is no second mode.
    """
    runs = np.moveaxis(log_rate, -3, -4)
    runs = runs.reshape(*runs.shape[:-3], -1, runs.shape[-1])
    shifted = runs - runs.max(axis=-2, keepdims=True)
    values = np.moveaxis(shifted, -1, 0).reshape(runs.shape[-1], *runs.shape[:-3], -1)
    values = np.moveaxis(values, 0, -2)
    cut, gap, variance = _best_split(values)
    # Half of each level's variance is lent by the others: a level's own estimate from few starts is too shaky.
    spread = np.sqrt((variance + np.median(variance, axis=-1, keepdims=True)) / 2)
    separation = gap / np.maximum(spread, 1e-12)
    limit = np.interp(values.shape[-1], STARTS, LIMITS)
    # Rates this close are one mode, however tight each cluster: 0.01 % is under any clock's resolution.
    apart = np.where(gap > 1e-4, separation, 0.0)
    found = (apart > limit).any(axis=-1, keepdims=True) & (log_rate.shape[-4] >= MIN_BLOCKS)
    bimodal = found & (apart > FOLLOWING * limit)
    return Modes(bimodal, separation, gap, shifted <= cut[..., None, None, :])


def unclear(modes: Modes, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Levels whose two modes could make the effect by themselves; low and high are its simultaneous interval.

    Starts drawn from two modes shift a mean by at most their gap: an interval wholly beyond the gap is a real effect.
    """
    return modes.bimodal & ~((low > modes.gap) | (high < -modes.gap))


def share_p(slow: NDArray[np.bool_]) -> float:
    """Fisher's exact p value that both arms have the same share of slow runs; slow is (2, starts)."""
    table = [[int(arm.sum()), int((~arm).sum())] for arm in slow]
    return float(stats.fisher_exact(table)[1])


def _best_split(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Largest value of the lower cluster, gap of means and pooled variance, of the split with least squares inside."""
    ordered = np.sort(values, axis=-1)
    count = ordered.shape[-1]
    below = np.arange(1, count)
    sums, squares = ordered.cumsum(-1), (ordered**2).cumsum(-1)
    low, low2 = sums[..., :-1], squares[..., :-1]
    high, high2 = sums[..., -1:] - low, squares[..., -1:] - low2
    inside = low2 - low**2 / below + high2 - high**2 / (count - below)
    best = inside.argmin(axis=-1)[..., None]
    gap = high / (count - below) - low / below
    pick = [np.take_along_axis(a, best, -1)[..., 0] for a in (ordered[..., :-1], gap, inside)]
    return pick[0], pick[1], np.maximum(pick[2], 0.0) / (count - 2)
