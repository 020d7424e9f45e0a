"""Power of the verdict's tests: what a number of blocks can show, and how many blocks an effect needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import stats

from loadtest.judge.facts import MIN_BLOCKS

POWER = 0.9
MAX_BLOCKS = 400


def power_of_difference(effect: float, sd: float, blocks: int, lost: int, alpha: float, levels: int = 1) -> float:
    """Chance that a log effect is found at one level in Holm's first step, for a block difference's sd.

    lost: degrees of freedom spent beside one per block (1 mirrored, 2 with a position effect).
    """
    df = blocks - lost
    shift = abs(effect) * math.sqrt(blocks) / max(sd, 1e-12)
    limit = float(stats.t.ppf(1 - alpha / 2 / levels, df))
    return _above(limit, df, shift) + _above(limit, df, -shift)


def power_of_noninferiority(effect: float, sd: float, blocks: int, lost: int, alpha: float, delta: float) -> float:
    """Chance that one level is shown to lose less than delta."""
    df = blocks - lost
    shift = (effect - math.log1p(-delta)) * math.sqrt(blocks) / max(sd, 1e-12)
    return _above(float(stats.t.ppf(1 - alpha, df)), df, shift)


def power_of_equivalence(effect: float, sd: float, blocks: int, lost: int, alpha: float, delta: float) -> float:
    """Chance that both one-sided tests against +-delta pass at one level (a lower bound: one less both failures)."""
    low = power_of_noninferiority(effect, sd, blocks, lost, alpha, delta)
    df = blocks - lost
    shift = (math.log1p(delta) - effect) * math.sqrt(blocks) / max(sd, 1e-12)
    return max(0.0, low + _above(float(stats.t.ppf(1 - alpha, df)), df, shift) - 1)


def detectable_effect(sd: float, blocks: int, lost: int, alpha: float, levels: int, power: float = POWER) -> float:
    """Smallest log effect found with the given power at one level in Holm's first step."""
    return sd * _detectable_sds(blocks, lost, alpha, levels, power)


def blocks_for_difference(
    effect: float, sd: float, lost: int, alpha: float, levels: int, power: float = POWER
) -> int | None:
    """Fewest blocks that find a log effect; None above MAX_BLOCKS."""
    return fewest_blocks(lambda n: power_of_difference(effect, sd, n, lost, alpha, levels) >= power)


def blocks_for_equivalence(
    effect: float, sd: float, lost: int, alpha: float, delta: float, power: float = POWER
) -> int | None:
    """Fewest blocks that show equivalence within delta at one level; None above MAX_BLOCKS."""
    return fewest_blocks(lambda n: power_of_equivalence(effect, sd, n, lost, alpha, delta) >= power)


def blocks_for_noninferiority(
    sd: float, lost: int, alpha: float, delta: float, levels: int, power: float = POWER
) -> int | None:
    """Fewest blocks that show no loss of delta at all levels at once, where there is none (Bonferroni over levels)."""
    each = 1 - (1 - power) / levels
    return fewest_blocks(lambda n: power_of_noninferiority(0.0, sd, n, lost, alpha, delta) >= each)


def fewest_blocks(enough: Callable[[int], bool]) -> int | None:
    """Least number of blocks from MIN_BLOCKS that is enough; None above MAX_BLOCKS."""
    low, high = MIN_BLOCKS, MAX_BLOCKS
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def percent(log_effect: float) -> float:
    """A log ratio as percent."""
    return float(100 * np.expm1(log_effect))


@lru_cache(maxsize=1024)
def _detectable_sds(blocks: int, lost: int, alpha: float, levels: int, power: float) -> float:
    low, high = 0.0, 1.0
    while power_of_difference(high, 1.0, blocks, lost, alpha, levels) < power:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        found = power_of_difference(middle, 1.0, blocks, lost, alpha, levels) >= power
        low, high = (low, middle) if found else (middle, high)
    return high


def _above(limit: float, df: int, shift: float) -> float:
    # scipy's noncentral t loses its footing far out, where the chance is 0 or 1 to all printed digits.
    if abs(shift) > 35:
        return float(shift > limit)
    return float(stats.nct.sf(limit, df, shift))
