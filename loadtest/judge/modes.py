"""Two modes in the runs of a level: starts that fall into two clusters, as when an autotuner or a clock is drawn anew.

A level counts as bimodal when its best two-cluster split stands further apart than a limit in within-cluster standard
deviations; the limit is larger for fewer starts, so that one-mode noise is called bimodal in about 1 % of campaigns.
What all starts of a block lose alike, in both arms, is the block's condition (a slower host) and no mode of starts.
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
# A run is at odds with its block only where it is this near, in gaps, to the mean of the other cluster: between the two
# lies noise, and of 32 runs in clusters 6 sds apart one is on the wrong side of the middle in 4 % of levels.
AT_ODDS = 0.25


@dataclass(frozen=True, slots=True)
class Modes:
    """Per level (...): separation in within-cluster sds, whether it passes the limit, gap of means in log units.

    slow (..., 2, starts per arm, levels) marks the runs of the lower cluster; meaningful only where bimodal. What whole
    blocks lost is taken out of all of these.
    """

    bimodal: NDArray[np.bool_]
    separation: Floats
    gap: Floats
    slow: NDArray[np.bool_]


def find_modes(log_rate: Floats) -> Modes:
    """Looks for two clusters in log rates of shape (..., blocks, arms, repeats, levels).

    Each arm is first shifted to its fastest run, so that a true difference between the arms is no second mode. Where
    every block is of one cluster, the slow blocks are lifted to the others and the level is searched again: their loss
    cancels in block differences, lets no other level follow, and must not hide slow starts.
    """
    return _searched(log_rate)[0]


def shared_losses(log_rate: Floats) -> Floats:
    """By how much `find_modes` lifts whole blocks, in log units, (..., blocks, levels); 0 where a block is not slow.

    It is what every run of the block, in both arms, is at least behind the fastest run of its arm.
    """
    return _searched(log_rate)[1]


def _searched(log_rate: Floats) -> tuple[Modes, Floats]:
    runs = np.moveaxis(log_rate, -3, -4)
    runs = runs - runs.max(axis=(-3, -2), keepdims=True)
    lifts = np.zeros((*runs.shape[:-4], runs.shape[-1]))
    losses = np.zeros((*runs.shape[:-4], runs.shape[-3], runs.shape[-1]))
    modes, apart = _search(runs, lifts)
    for _ in range(1, runs.shape[-3]):
        loss = np.where(apart[..., None, :], _block_losses(runs, modes), 0.0)
        if not loss.any():
            break
        runs = runs + loss[..., None, :, None, :]
        losses += loss
        lifts += loss.any(axis=-2)
        modes, apart = _search(runs, lifts)
    return modes, losses


def unclear(modes: Modes, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Levels whose two modes could make the effect by themselves; low and high are its simultaneous interval.

    Starts drawn from two modes shift a mean by at most their gap: an interval wholly beyond the gap is a real effect.
    """
    return modes.bimodal & ~((low > modes.gap) | (high < -modes.gap))


def share_p(slow: NDArray[np.bool_]) -> float:
    """Fisher's exact p value that both arms have the same share of slow runs; slow is (2, starts)."""
    table = [[int(arm.sum()), int((~arm).sum())] for arm in slow]
    return float(stats.fisher_exact(table)[1])


def _search(runs: Floats, lifts: Floats) -> tuple[Modes, NDArray[np.bool_]]:
    """Modes of shifted log rates (..., arms, blocks, repeats, levels), and which levels pass the lower limit."""
    shifted = runs.reshape(*runs.shape[:-3], -1, runs.shape[-1])
    values = np.moveaxis(shifted, -1, -3).reshape(*lifts.shape, -1)
    cut, gap, inside = _best_split(values)
    # A lift is one more mean estimated from the runs.
    variance = inside / (values.shape[-1] - 2 - lifts)
    # Half of each level's variance is lent by the others: a level's own estimate from few starts is too shaky.
    spread = np.sqrt((variance + np.median(variance, axis=-1, keepdims=True)) / 2)
    separation = gap / np.maximum(spread, 1e-12)
    limit = np.interp(values.shape[-1], STARTS, LIMITS)
    # Rates this close are one mode, however tight each cluster: 0.01 % is under any clock's resolution.
    apart = np.where((gap > 1e-4) & (runs.shape[-3] >= MIN_BLOCKS), separation, 0.0)
    follows = apart > FOLLOWING * limit
    bimodal = follows & (apart > limit).any(axis=-1, keepdims=True)
    return Modes(bimodal, separation, gap, shifted <= cut[..., None, None, :]), follows


def _block_losses(runs: Floats, modes: Modes) -> Floats:
    """How far behind slow blocks are by their fastest run, (..., blocks, levels); 0 at a level with a block of both."""
    marks = modes.slow.reshape(runs.shape)
    every = (-4, -3, -2)
    low = (runs * marks).sum(axis=every, keepdims=True) / marks.sum(axis=every, keepdims=True)
    gap = modes.gap[..., None, None, None, :]
    slow = runs.mean(axis=(-4, -2), keepdims=True) < low + gap / 2
    at_odds = np.where(slow, runs > low + (1 - AT_ODDS) * gap, runs < low + AT_ODDS * gap)
    shared = slow & ~at_odds.any(axis=every, keepdims=True)
    fastest = np.where(shared, runs, -np.inf).max(axis=every, keepdims=True)
    return np.asarray(np.where(shared, -fastest, 0.0)[..., 0, :, 0, :])


def _best_split(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Of the split with least squares inside: largest value of the lower cluster, gap of means, those squares."""
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
    return pick[0], pick[1], np.maximum(pick[2], 0.0)
