"""Campaigns in virtual time: thousands at once, with known true effects and the plan's own order of starts.

Everything made here is simulated; it exists to measure the verdict's error rates and to test the judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from loadtest.cells import Cell
from loadtest.judge.stats import Floats
from loadtest.plan import Plan

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Noise:
    """What disturbs a start's rate, as fractions of the rate (0.005 = 0.5 %).

    start_sd is shared by all levels of a start, cell_sd is each cell's own; uneven multiplies cell_sd at the lowest
    level. tails: degrees of freedom of Student noise (None is Gaussian). warmup: rate missing at the campaign's begin,
    decaying over a third of it. drift_sd with drift_rho (correlation of successive starts): AR(1); walk_sd: random walk
    a start. step: one change at a random time. stall_depth: loss of the slow mode, which takes a share stall_share of
    the starts, or of single cells where stall_cells. block_depth: loss of a share block_share of the blocks, at all
    starts of such a block, as on a slower host.
    """

    name: str
    start_sd: float = 0.0035
    cell_sd: float = 0.0035
    uneven: float = 1.0
    tails: int | None = None
    warmup: float = 0.0
    drift_sd: float = 0.0
    drift_rho: float = 0.9
    walk_sd: float = 0.0
    step: float = 0.0
    stall_depth: float = 0.0
    stall_share: float = 0.25
    stall_cells: bool = False
    block_depth: float = 0.0
    block_share: float = 1 / 3

    @property
    def unimodal(self) -> bool:
        """Whether block differences come from one mode: slow blocks are slow in both arms, and cancel."""
        return self.stall_depth == 0


@dataclass(frozen=True, slots=True)
class Campaigns:
    """Log rates, shape (campaigns, blocks, starts of a block, levels), and which cells ran in the slow mode.

    A slow block is no slow mode: it is slow in both arms.
    """

    plan: Plan
    log_rate: Floats
    slow: Bools

    def arms(self, variant: str) -> tuple[Floats, Bools]:
        """Log rates and slow cells of a contrast: (campaigns, blocks, 2 arms, repeats, levels), the control first."""
        names = (self.plan.controls[variant], variant)
        orders = [[s.variant for s in self.plan.starts(b)] for b in range(self.plan.blocks)]
        index = np.array([[[i for i, v in enumerate(o) if v == name] for name in names] for o in orders])
        blocks = np.arange(self.plan.blocks)[:, None, None]
        return self.log_rate[:, blocks, index], self.slow[:, blocks, index]

    def position(self, variant: str) -> Floats:
        """Mean start index of the variant less that of its control, per block."""
        return np.array([_position(self.plan, b, variant) for b in range(self.plan.blocks)])

    def cells(self, campaign: int) -> list[Cell]:
        """One campaign as the cells that a window would have produced."""
        rates = np.exp(self.log_rate[campaign])
        starts = [s for b in range(self.plan.blocks) for s in self.plan.starts(b)]
        return [
            _cell(self.plan, s.block, s.index, s.variant, c, float(rates[s.block, s.index, i]))
            for s in starts
            for i, c in enumerate(self.plan.concurrencies)
        ]


def simulate(
    plan: Plan, effects: Mapping[str, Floats], noise: Noise, campaigns: int, rng: np.random.Generator
) -> Campaigns:
    """Draws campaigns; effects maps a variant to its true change per level (fractions), controls change nothing."""
    starts = [plan.starts(b) for b in range(plan.blocks)]
    shape = (campaigns, plan.blocks, len(starts[0]), len(plan.concurrencies))
    still = np.zeros(shape[-1])
    truth = np.array([[np.log1p(effects.get(s.variant, still)) for s in block] for block in starts])
    slow = _slow(noise, shape, rng)
    base = np.log(100 * np.sqrt(plan.concurrencies))
    rate = base + truth + _start_noise(noise, shape, rng) + slow * np.log1p(-noise.stall_depth)
    return Campaigns(plan, rate + _drift(noise, plan, shape, rng) + _slow_blocks(noise, shape, rng), slow)


def _start_noise(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    cell_sd = np.full(shape[-1], noise.cell_sd)
    cell_sd[0] *= noise.uneven
    return noise.start_sd * _draw(noise, (*shape[:-1], 1), rng) + cell_sd * _draw(noise, shape, rng)


def _draw(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if noise.tails is None:
        return rng.standard_normal(shape)
    return np.asarray(rng.standard_t(noise.tails, shape) * ((noise.tails - 2) / noise.tails) ** 0.5)


def _slow(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Bools:
    drawn = rng.random(shape if noise.stall_cells else (*shape[:-1], 1)) < noise.stall_share
    return np.broadcast_to(drawn & (noise.stall_depth > 0), shape)


def _slow_blocks(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if not noise.block_depth:
        return np.zeros(shape)
    slower = rng.random((*shape[:2], 1, 1)) < noise.block_share
    return np.broadcast_to(slower * np.log1p(-noise.block_depth), shape)


def _drift(noise: Noise, plan: Plan, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Drift by the time of each cell: starts follow each other, levels in the order the block visits them."""
    campaigns, blocks, starts, levels = shape
    total = blocks * starts * levels
    series = np.zeros((campaigns, total)) - noise.warmup * np.exp(-3 * np.arange(total) / total)
    if noise.drift_sd:
        rho = noise.drift_rho ** (1 / levels)
        shocks = rng.standard_normal((campaigns, total)) * (1 - rho**2) ** 0.5
        shocks[:, 0] /= (1 - rho**2) ** 0.5
        series += noise.drift_sd * lfilter([1.0], [1.0, -rho], shocks, axis=1)
    if noise.walk_sd:
        series += noise.walk_sd / levels**0.5 * rng.standard_normal((campaigns, total)).cumsum(axis=1)
    if noise.step:
        series += noise.step * (np.arange(total) >= rng.integers(1, total, (campaigns, 1)))
    visited = series.reshape(shape)
    orders = [plan.starts(b)[0].concurrencies for b in range(blocks)]
    when = np.array([[order.index(c) for c in plan.concurrencies] for order in orders])
    return np.take_along_axis(visited, np.broadcast_to(when[None, :, None, :], shape), axis=-1)


def _position(plan: Plan, block: int, variant: str) -> float:
    starts = plan.starts(block)
    own, control = ([s.index for s in starts if s.variant == v] for v in (variant, plan.controls[variant]))
    return sum(own) / len(own) - sum(control) / len(control)


def _cell(plan: Plan, block: int, start: int, variant: str, concurrency: int, rate: float) -> Cell:
    window_s = plan.window.window_s
    tpot_ms = 1000 * concurrency / rate
    return Cell(
        block=block,
        start=start,
        variant=variant,
        concurrency=concurrency,
        tokens_per_s=rate,
        window_s=window_s,
        tokens=round(rate * window_s),
        requests=max(1, round(rate * window_s / plan.lengths.output_tokens)),
        ttft_p50_ms=50.0,
        ttft_p95_ms=60.0,
        tpot_p50_ms=tpot_ms,
        itl_p50_ms=tpot_ms,
        itl_p99_ms=1.5 * tpot_ms,
        e2e_p50_ms=50.0 + tpot_ms * (plan.lengths.output_tokens - 1),
        decode_batch=float(concurrency),
        failures=0,
        short_outputs=0,
    )
