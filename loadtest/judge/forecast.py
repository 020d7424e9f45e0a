"""What to plan: blocks and hours that an effect needs, and what can be seen in the time one has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from app.errors import UsageError
from loadtest.cells import Cell
from loadtest.judge import power
from loadtest.judge.contrast import CellTable
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.stats import fit_effect
from loadtest.plan import Design, Plan

# A pilot's sd is itself uncertain: plan with the value that the true one is under with this confidence.
ASSURANCE = 0.8


@dataclass(frozen=True, slots=True)
class Pilot:
    """Noise known beforehand: sd of one block difference per concurrency, as a fraction, on df degrees of freedom.

    df None means that sd is taken as true. source says where it comes from and is printed with the forecast.
    """

    design: Design
    sd: Mapping[int, float]
    df: int | None
    source: str

    def __post_init__(self) -> None:
        if not self.sd or not all(0 < sd < math.inf for sd in self.sd.values()):
            raise UsageError(f"sd {dict(self.sd)} of {self.source}: needs a positive sd for each concurrency")

    @classmethod
    def from_campaign(cls, plan: Plan, cells: Iterable[Cell], source: str) -> Pilot:
        """Noise of a measured campaign, finished or not; several variants are pooled, their df is not."""
        table = CellTable(plan, cells)
        contrasts = [table.contrast(v) for v in plan.controls]
        fits = [fit_effect(c.differences, c.position) for c in contrasts]
        sd = np.sqrt(np.mean([f.sd**2 for f in fits], axis=0))
        return cls(plan.design, dict(zip(plan.concurrencies, map(float, sd), strict=True)), fits[0].df, source)

    @classmethod
    def from_verdict(cls, verdict: Mapping[str, Any]) -> Pilot:
        """Noise told by a verdict.json, an A/A campaign's or any other's."""
        usable = [v for v in verdict["variants"] if v["decision"] != "invalid"]
        if not usable:
            raise UsageError(f"campaign {verdict['campaign']} has no valid variant to take its noise from")
        levels = [x["concurrency"] for x in usable[0]["levels"]]
        sds = np.array([[x["sd_pct"] / 100 for x in v["levels"]] for v in usable])
        lost = 1 if verdict["design"] == "mirrored" else 2
        df = min(len(v["blocks"]) for v in usable) - lost
        sd = map(float, np.sqrt((sds**2).mean(axis=0)))
        return cls(verdict["design"], dict(zip(levels, sd, strict=True)), df, f"campaign {verdict['campaign']}")

    def planned_sd(self, concurrency: int) -> float:
        """The sd to plan with: the upper limit of what the pilot allows."""
        if self.df is None:
            return self.sd[concurrency]
        return self.sd[concurrency] * math.sqrt(self.df / float(stats.chi2.ppf(1 - ASSURANCE, self.df)))


@dataclass(frozen=True, slots=True)
class Pace:
    """Wall seconds that a campaign takes: start_s to bring up and warm a start, level_s for each concurrency of it."""

    start_s: float
    level_s: float

    def hours(self, plan_variants: int, levels: int, design: Design, blocks: int) -> float:
        """Length of a campaign of so many started variants (controls included)."""
        starts = plan_variants * (2 if design == "mirrored" else 1) * blocks
        return starts * (self.start_s + levels * self.level_s) / 3600


@dataclass(frozen=True, slots=True)
class Seen:
    """What a number of blocks shows: the smallest change per concurrency, in percent, found with that power."""

    blocks: int
    hours: float
    detectable_pct: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Blocks that find a change of effect_pct at each concurrency with the given power, and the whole campaign's need.

    blocks is the most over concurrencies; blocks_to_accept shows no loss of delta everywhere where there is none;
    None stands for more than 400 blocks. hours and hours_to_accept: what either number of blocks takes. choices: what
    smaller and larger campaigns would see.
    """

    effect_pct: float
    power: float
    source: str
    design: Design
    planned_sd_pct: Mapping[int, float]
    blocks_by_level: Mapping[int, int | None]
    blocks: int | None
    blocks_to_accept: int | None
    hours: float | None
    hours_to_accept: float | None
    choices: tuple[Seen, ...]


def forecast(
    pilot: Pilot,
    pace: Pace,
    effect: float,
    variants: int = 2,
    target: float = power.POWER,
    alpha: float = 0.05,
    delta: float = 0.01,
) -> Forecast:
    """Plans for a change of `effect` (fraction) with power `target`, in a family of the pilot's concurrencies."""
    if effect == 0 or not -1 < effect < math.inf or not 0 < target < 1:
        raise UsageError(
            f"effect {effect:+.2%} with power {target}: give an effect other than 0 and a power between 0 and 1"
        )
    levels, lost = tuple(pilot.sd), 1 if pilot.design == "mirrored" else 2
    sd = {c: pilot.planned_sd(c) for c in levels}
    size = math.log1p(effect)
    need = {c: power.blocks_for_difference(size, sd[c], lost, alpha, len(levels), target) for c in levels}
    accept = [power.blocks_for_noninferiority(sd[c], lost, alpha, delta, len(levels), target) for c in levels]
    blocks, to_accept = _most(need.values()), _most(accept)

    def hours(number: int | None) -> float | None:
        return None if number is None else pace.hours(variants, len(levels), pilot.design, number)

    return Forecast(
        effect_pct=100 * effect,
        power=target,
        source=pilot.source,
        design=pilot.design,
        planned_sd_pct={c: 100 * sd[c] for c in levels},
        blocks_by_level=need,
        blocks=blocks,
        blocks_to_accept=to_accept,
        hours=hours(blocks),
        hours_to_accept=hours(to_accept),
        choices=tuple(seen(pilot, pace, n, variants, target, alpha) for n in (4, 6, 8, 10, 12, 16)),
    )


def seen(
    pilot: Pilot, pace: Pace, blocks: int, variants: int = 2, target: float = power.POWER, alpha: float = 0.05
) -> Seen:
    """What a campaign of so many blocks can find."""
    levels, lost = tuple(pilot.sd), 1 if pilot.design == "mirrored" else 2
    found = {
        c: power.percent(power.detectable_effect(pilot.planned_sd(c), blocks, lost, alpha, len(levels), target))
        for c in levels
    }
    return Seen(blocks, pace.hours(variants, len(levels), pilot.design, blocks), found)


def seen_in(pilot: Pilot, pace: Pace, hours: float, variants: int = 2, target: float = power.POWER) -> Seen:
    """What can be found in the hours one has; UsageError when they do not suffice for a verdict."""
    each = pace.hours(variants, len(pilot.sd), pilot.design, 1)
    blocks = int(hours / each)
    if blocks < MIN_BLOCKS:
        raise UsageError(
            f"{hours:g} h hold {blocks} blocks of {each:.2g} h; a verdict needs {MIN_BLOCKS}: "
            "take fewer concurrencies, the single design or shorter windows"
        )
    return seen(pilot, pace, blocks, variants, target)


def _most(blocks: Iterable[int | None]) -> int | None:
    found = list(blocks)
    return None if None in found else max(n for n in found if n is not None)
