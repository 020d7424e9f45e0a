"""Throughput against concurrency, per variant: does it keep rising, where does it bend?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from app.errors import UsageError
from loadtest.cells import Cell
from loadtest.judge.power import percent
from loadtest.judge.stats import Floats, analyse
from loadtest.plan import Plan

Trend = Literal["rises", "falls", "flat", "undecided"]
QUESTION = (48, 64, 80, 96)
MIN_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Change:
    """Change of output tokens per second from one concurrency to another, in percent, with its interval.

    flat: the interval lies within +-delta; rises or falls: it lies beyond 0; undecided: neither.
    """

    start: int
    end: int
    change_pct: float
    low_pct: float
    high_pct: float
    trend: Trend


@dataclass(frozen=True, slots=True)
class ThroughputCurve:
    """How a variant's throughput goes with concurrency; the unit is the block, intervals at the plan's alpha.

    tokens_per_s: geometric mean per level. steps: neighbouring levels, simultaneous intervals. answer: first to last of
    the levels asked about. per_stream: slope over those levels, tokens/s per added stream, with its interval. knee:
    lowest level after which no step rises; None while the last step still does. blocks: how many were usable.
    """

    variant: str
    blocks: int
    tokens_per_s: dict[int, float]
    steps: tuple[Change, ...]
    answer: Change
    per_stream: tuple[float, float, float]
    knee: int | None

    def __str__(self) -> str:
        a = self.answer
        bend = f"knee at C={self.knee}" if self.knee else "no knee up to the last concurrency"
        return (
            f"{self.variant}: {a.trend} from C={a.start} to {a.end} ({a.change_pct:+.1f} %, {a.low_pct:+.1f} to "
            f"{a.high_pct:+.1f}); {self.per_stream[0]:+.2f} tokens/s a stream; {bend}"
        )


def throughput_curve(
    plan: Plan, cells: Iterable[Cell], variant: str, question: Sequence[int] | None = None
) -> ThroughputCurve:
    """The curve of one variant over blocks in which all its cells are valid.

    question: levels asked about, such as (60, 90); by default those of 48, 64, 80, 96 that were measured, or all.
    """
    levels = plan.concurrencies
    asked = _asked(levels, question)
    logs = _block_logs(plan, cells, variant)
    if len(logs) < MIN_BLOCKS or len(levels) < 2:
        raise UsageError(
            f"{variant}: {len(logs)} usable blocks over {len(levels)} concurrencies; a slope needs {MIN_BLOCKS} over 2"
        )
    steps = _changes(plan, np.diff(logs, axis=1), list(pairwise(levels)), simultaneous=True)
    ends = [levels.index(asked[0]), levels.index(asked[-1])]
    answer = _changes(plan, logs[:, [ends[1]]] - logs[:, [ends[0]]], [(asked[0], asked[-1])], simultaneous=False)[0]
    means = np.exp(logs.mean(axis=0))
    return ThroughputCurve(
        variant,
        len(logs),
        dict(zip(levels, map(float, means), strict=True)),
        steps,
        answer,
        _per_stream(plan, logs, asked),
        _knee(steps),
    )


def _asked(levels: tuple[int, ...], question: Sequence[int] | None) -> tuple[int, ...]:
    if question is None:
        known = tuple(c for c in QUESTION if c in levels)
        return known if len(known) > 1 else levels
    missing = [c for c in question if c not in levels]
    if missing or len(set(question)) < 2:
        raise UsageError(f"slope over C={list(question)}: needs two of the measured concurrencies {list(levels)}")
    return tuple(sorted(set(question)))


def _block_logs(plan: Plan, cells: Iterable[Cell], variant: str) -> Floats:
    """Mean log throughput per usable block and level."""
    found: dict[int, dict[int, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.variant == variant:
            found[cell.block][cell.concurrency].append(cell)
    usable = [
        [np.mean([np.log(c.tokens_per_s) for c in block[level]]) for level in plan.concurrencies]
        for _, block in sorted(found.items())
        if set(block) == set(plan.concurrencies) and all(c.valid for cells in block.values() for c in cells)
    ]
    return np.array(usable, dtype=float).reshape(len(usable), len(plan.concurrencies))


def _changes(plan: Plan, d: Floats, pairs: list[tuple[int, int]], simultaneous: bool) -> tuple[Change, ...]:
    a = analyse(d, None, plan.alpha, plan.delta)
    low, high = (a.simultaneous_low, a.simultaneous_high) if simultaneous else (a.low, a.high)
    return tuple(
        Change(*pair, percent(float(a.fit.effect[i])), percent(float(low[i])), percent(float(high[i])), trend)
        for i, pair in enumerate(pairs)
        for trend in [_trend(float(low[i]), float(high[i]), plan.delta)]
    )


def _trend(low: float, high: float, delta: float) -> Trend:
    if np.log1p(-delta) < low and high < np.log1p(delta):
        return "flat"
    if low > 0:
        return "rises"
    return "falls" if high < 0 else "undecided"


def _per_stream(plan: Plan, logs: Floats, asked: tuple[int, ...]) -> tuple[float, float, float]:
    chosen = [plan.concurrencies.index(c) for c in asked]
    x = np.array(asked, dtype=float) - np.mean(asked)
    slopes = np.exp(logs[:, chosen]) @ x / (x @ x)
    a = analyse(slopes[:, None], None, plan.alpha, plan.delta)
    return float(a.fit.effect[0]), float(a.low[0]), float(a.high[0])


def _knee(steps: tuple[Change, ...]) -> int | None:
    rising = [i for i, step in enumerate(steps) if step.trend == "rises"]
    if not rising:
        return steps[0].start
    return None if rising[-1] == len(steps) - 1 else steps[rising[-1]].end
