"""How many blocks an effect needs, what a number of blocks can show, and how long either takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

POWER = 0.9
MIN_BLOCKS = 4
MAX_BLOCKS = 400


def power_of_difference(effect: float, sd: float, blocks: int, lost: int, alpha: float, levels: int = 1) -> float:
    """Chance that a log effect is found at one level in Holm's first step, for a block difference's sd.

    lost: degrees of freedom spent beside one per block (1 mirrored, 2 with a position effect).
    """
    df = blocks - lost
    shift = abs(effect) * math.sqrt(blocks) / max(sd, 1e-12)
    limit = stats.t.ppf(1 - alpha / 2 / levels, df)
    # scipy's noncentral t loses its footing far out, where the chance is 1 to all printed digits.
    return 1.0 if shift > limit + 40 else float(stats.nct.sf(limit, df, shift) + stats.nct.cdf(-limit, df, shift))


def power_of_equivalence(effect: float, sd: float, blocks: int, lost: int, alpha: float, delta: float) -> float:
    """Chance that both one-sided tests against +-delta pass at one level (normal approximation of the joint event)."""
    df, se = blocks - lost, max(sd, 1e-12) / math.sqrt(blocks)
    limit = float(stats.t.ppf(1 - alpha, df)) * se
    upper, lower = math.log1p(delta) - limit - effect, math.log1p(-delta) + limit - effect
    return max(0.0, float(stats.norm.cdf(upper / se) - stats.norm.cdf(lower / se)))


def detectable_effect(sd: float, blocks: int, lost: int, alpha: float, levels: int, power: float = POWER) -> float:
    """Smallest log effect found with the given power at one level in Holm's first step."""
    high = sd or 1e-12
    while power_of_difference(high, sd, blocks, lost, alpha, levels) < power:
        high *= 2
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        found = power_of_difference(middle, sd, blocks, lost, alpha, levels) >= power
        low, high = (low, middle) if found else (middle, high)
    return high


def blocks_for_difference(
    effect: float, sd: float, lost: int, alpha: float, levels: int, power: float = POWER
) -> int | None:
    """Fewest blocks that find a log effect; None above MAX_BLOCKS."""
    return _fewest(lambda n: power_of_difference(effect, sd, n, lost, alpha, levels) >= power)


def blocks_for_equivalence(
    effect: float, sd: float, lost: int, alpha: float, delta: float, power: float = POWER
) -> int | None:
    """Fewest blocks that show equivalence within delta at one level; None above MAX_BLOCKS."""
    if not math.log1p(-delta) < effect < math.log1p(delta):
        return None
    return _fewest(lambda n: power_of_equivalence(effect, sd, n, lost, alpha, delta) >= power)


def _fewest(enough: Callable[[int], bool]) -> int | None:
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
