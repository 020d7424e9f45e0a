"""From cells to the contrast of a variant and its control: complete blocks only, void blocks counted with reasons."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.errors import InvalidCampaignError
from loadtest.cells import Cell
from loadtest.judge.stats import Floats
from loadtest.plan import Plan

Metric = Literal["tokens_per_s", "ttft_p95_ms", "tpot_p50_ms", "itl_p99_ms"]

# A difference of failure or short-output rates above this voids the block: it is a difference in the work done.
RATE_TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class VoidBlock:
    """A block that is dropped for a variant and its control alike."""

    block: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Log rates of the usable blocks, shape (blocks, 2 arms, repeats, levels), the control's arm first.

    position (blocks,): mean start index of the variant less that of the control. unmeasured: planned blocks of which
    no cell exists.
    """

    variant: str
    control: str
    blocks: tuple[int, ...]
    log_rate: Floats
    position: Floats
    void: tuple[VoidBlock, ...]
    unmeasured: tuple[int, ...]

    @property
    def differences(self) -> Floats:
        """Log ratio of variant to control per block and level, shape (blocks, levels)."""
        return block_differences(self.log_rate)


Key = tuple[int, str, int, int]


class CellTable:
    """Cells by block, variant, start and concurrency; refuses duplicates and what the plan does not know."""

    def __init__(self, plan: Plan, cells: Iterable[Cell]) -> None:
        self.plan = plan
        self._cells: dict[Key, Cell] = {}
        self._starts: dict[tuple[int, str], set[int]] = defaultdict(set)
        for cell in cells:
            self._add(cell)

    def contrast(self, variant: str) -> Contrast:
        """The contrast of a variant and its control."""
        arms = (self.plan.controls[variant], variant)
        used, void, unmeasured = [], [], []
        for block in range(self.plan.blocks):
            if not any(self._starts.get((block, arm)) for arm in arms):
                unmeasured.append(block)
            elif reasons := self._reasons(block, arms):
                void.append(VoidBlock(block, reasons))
            else:
                used.append(block)
        rates = np.array([self._values(b, arms, "tokens_per_s") for b in used]).reshape(
            len(used), 2, self._repeats, len(self.plan.concurrencies)
        )
        positions = np.array([self._position(b, arms) for b in used])
        return Contrast(variant, arms[0], tuple(used), np.log(rates), positions, tuple(void), tuple(unmeasured))

    def log_metric(self, contrast: Contrast, metric: Metric) -> Floats:
        """Log of another figure over the contrast's blocks, shaped as its log_rate; NaN where undefined."""
        arms = (contrast.control, contrast.variant)
        values = np.array([self._values(b, arms, metric) for b in contrast.blocks]).reshape(contrast.log_rate.shape)
        return np.log(np.where(values > 0, values, np.nan))

    @property
    def _repeats(self) -> int:
        return 2 if self.plan.design == "mirrored" else 1

    def _add(self, cell: Cell) -> None:
        plan, key = self.plan, (cell.block, cell.variant, cell.start, cell.concurrency)
        if cell.variant not in plan.variants or cell.concurrency not in plan.concurrencies:
            raise InvalidCampaignError(f"cell {_named(cell)} is not in the plan; judge it with its own plan")
        if not 0 <= cell.block < plan.blocks:
            raise InvalidCampaignError(f"cell {_named(cell)}: the plan has blocks 0 to {plan.blocks - 1}")
        if key in self._cells:
            raise InvalidCampaignError(f"cell {_named(cell)} is there twice; rebuild cells.csv from the rows")
        self._cells[key] = cell
        self._starts[cell.block, cell.variant].add(cell.start)

    def _of_arm(self, block: int, arm: str) -> list[Cell]:
        starts = sorted(self._starts.get((block, arm), ()))
        keys = [(block, arm, s, c) for s in starts for c in self.plan.concurrencies]
        return [self._cells[k] for k in keys if k in self._cells]

    def _reasons(self, block: int, arms: tuple[str, str]) -> tuple[str, ...]:
        reasons = [r for arm in arms for r in self._arm_reasons(block, arm)]
        return tuple(reasons) or self._unequal_work(block, arms) or self._unmirrored(block, arms)

    def _arm_reasons(self, block: int, arm: str) -> list[str]:
        starts = self._starts.get((block, arm), set())
        if len(starts) != self._repeats:
            return [f"{arm}: {len(starts)} of {self._repeats} starts measured"]
        reasons = []
        for start in sorted(starts):
            for level in self.plan.concurrencies:
                cell = self._cells.get((block, arm, start, level))
                reasons += [f"{arm} start {start + 1} C={level}: {why}" for why in _faults(cell)]
        return reasons

    def _unequal_work(self, block: int, arms: tuple[str, str]) -> tuple[str, ...]:
        reasons = []
        for level in self.plan.concurrencies:
            cells = [[c for c in self._of_arm(block, arm) if c.concurrency == level] for arm in arms]
            for what in ("failures", "short_outputs"):
                rates = [_rate(arm, what) for arm in cells]
                if abs(rates[1] - rates[0]) > RATE_TOLERANCE:
                    label = what.replace("_", " ")
                    shares = f"{arms[0]} {rates[0]:.2%}, {arms[1]} {rates[1]:.2%}"
                    reasons.append(f"share of {label} differs at C={level}: {shares}")
        return tuple(reasons)

    def _unmirrored(self, block: int, arms: tuple[str, str]) -> tuple[str, ...]:
        if self.plan.design == "mirrored" and self._position(block, arms):
            return (f"starts of {arms[0]} and {arms[1]} are not mirrored: drift would count as effect",)
        return ()

    def _position(self, block: int, arms: tuple[str, str]) -> float:
        control, variant = (self._starts[block, arm] for arm in arms)
        return sum(variant) / len(variant) - sum(control) / len(control)

    def _values(self, block: int, arms: tuple[str, str], metric: Metric) -> list[list[float]]:
        return [[float(getattr(c, metric)) for c in self._of_arm(block, arm)] for arm in arms]


def block_differences(log_rate: Floats) -> Floats:
    """Variant less control, repeats averaged: (..., blocks, 2, repeats, levels) to (..., blocks, levels)."""
    means = log_rate.mean(axis=-2)
    return np.asarray(means[..., 1, :] - means[..., 0, :])


def _faults(cell: Cell | None) -> Sequence[str]:
    if cell is None:
        return ["not measured"]
    if cell.valid and not (math.isfinite(cell.tokens_per_s) and cell.tokens_per_s > 0):
        return [f"no throughput ({cell.tokens_per_s} tokens/s)"]
    return cell.reasons


def _rate(cells: list[Cell], what: str) -> float:
    asked = sum(c.requests + c.failures for c in cells)
    return sum(int(getattr(c, what)) for c in cells) / asked if asked else 0.0


def _named(cell: Cell) -> str:
    return f"block {cell.block + 1} start {cell.start + 1} {cell.variant} C={cell.concurrency}"
