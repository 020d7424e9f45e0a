"""Whether a plan keeps its word: pilots, the campaigns planned from them, and how many of those find the effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loadtest.judge import power
from loadtest.judge.calibrate import ALPHA, BATCH, LEVELS
from loadtest.judge.contrast import block_differences
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.forecast import Pilot
from loadtest.judge.modes import find_modes
from loadtest.judge.stats import Floats, fit_effect, holm, two_sided
from loadtest.judge.virtual import Campaigns, Noise, simulate
from loadtest.plan import Plan

QUIET = Noise("start noise .5 %")
LOUD = Noise("start noise 1.5 %", start_sd=0.0105, cell_sd=0.0105)
CASES = ((QUIET, -0.07), (QUIET, -0.02), (QUIET, -0.01), (LOUD, -0.07), (LOUD, -0.03))
PILOT_BLOCKS = (4, 8)
MOST_BLOCKS = 60
LAST = len(LEVELS) - 1


@dataclass(frozen=True, slots=True)
class PlannedPower:
    """One case: effect at C=96 planned from A/A pilots; blocks are quartiles of what was planned, found a share."""

    noise: str
    effect_pct: float
    pilot_blocks: int
    asked: float
    campaigns: int
    blocks_low: int
    blocks_median: int
    blocks_high: int
    found: float
    found_se: float


def calibrate_power(campaigns: int) -> Iterator[PlannedPower]:
    """Every case with every size of pilot."""
    for place, (noise, effect) in enumerate(CASES):
        for pilot_blocks in PILOT_BLOCKS:
            yield _measure(noise, effect, pilot_blocks, campaigns, place)


def broken_plans(rows: list[PlannedPower]) -> list[str]:
    """Cases found less often than asked for, less two Monte-Carlo standard errors."""
    short = [r for r in rows if r.found < r.asked - 2 * r.found_se]
    return [f"{r.noise}, {r.effect_pct:+g} % from {r.pilot_blocks} blocks: found in {r.found:.4f}" for r in short]


def _measure(noise: Noise, effect: float, pilot_blocks: int, campaigns: int, place: int) -> PlannedPower:
    rng = np.random.default_rng([place, pilot_blocks])
    planned = _planned_blocks(_pilot_sds(noise, pilot_blocks, campaigns, rng), effect, pilot_blocks - 1)
    found = sum(_found(noise, effect, int(n), int((planned == n).sum()), rng) for n in np.unique(planned))
    share = found / campaigns
    low, middle, high = (int(q) for q in np.quantile(planned, (0.25, 0.5, 0.75), method="nearest"))
    se = max(share * (1 - share) / campaigns, 1e-12) ** 0.5
    return PlannedPower(noise.name, 100 * effect, pilot_blocks, power.POWER, campaigns, low, middle, high, share, se)


def _pilot_sds(noise: Noise, blocks: int, campaigns: int, rng: np.random.Generator) -> Floats:
    drawn = (_draw(noise, 0.0, blocks, n, seed, rng) for seed, n in _batches(campaigns))
    return np.concatenate([fit_effect(block_differences(c.arms("changed")[0])).sd[:, LAST] for c in drawn])


def _planned_blocks(sd: Floats, effect: float, df: int) -> Floats:
    planned_sd = sd * Pilot("mirrored", {LEVELS[LAST]: 1.0}, df, "pilot").planned_sd(LEVELS[LAST])
    choices = np.arange(MIN_BLOCKS, MOST_BLOCKS + 1)
    needed = [power.detectable_effect(1.0, int(n), 1, ALPHA, len(LEVELS)) for n in choices]
    enough = planned_sd[:, None] * np.array(needed) <= abs(np.log1p(effect))
    return np.asarray(np.where(enough.any(axis=1), choices[enough.argmax(axis=1)], MOST_BLOCKS))


def _found(noise: Noise, effect: float, blocks: int, campaigns: int, rng: np.random.Generator) -> int:
    found = 0
    for seed, n in _batches(campaigns):
        rates, _ = _draw(noise, effect, blocks, n, seed, rng).arms("changed")
        f = fit_effect(block_differences(rates))
        shown = (holm(two_sided(f)) <= ALPHA) & ~find_modes(rates).bimodal & (np.sign(f.effect) == np.sign(effect))
        found += int(shown[:, LAST].sum())
    return found


def _draw(noise: Noise, effect: float, blocks: int, campaigns: int, seed: int, rng: np.random.Generator) -> Campaigns:
    plan = Plan(seed, {"changed": "control"}, LEVELS, blocks)
    # Only C=96 changes, so that its p stands alone in Holm's first step: the hardest place to be found.
    truth = np.array([0.0] * LAST + [effect])
    return simulate(plan, {"changed": truth}, noise, campaigns, rng)


def _batches(campaigns: int) -> Iterator[tuple[int, int]]:
    return ((first, min(BATCH, campaigns - first)) for first in range(0, campaigns, BATCH))
