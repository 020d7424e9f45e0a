"""Blocks that are slow as a whole, in every start of a variant and of its control, as on a slower host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from loadtest.cells import Cell
from loadtest.judge.contrast import CellTable, Contrast
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.modes import shared_losses
from loadtest.judge.power import percent
from loadtest.plan import Plan


@dataclass(frozen=True, slots=True)
class SlowBlock:
    """A block (0-based) at one concurrency; variants: those slow in every start of it, controls among them.

    slower_pct: what each of these starts is at least behind the fastest start of its variant in the campaign.
    """

    block: int
    concurrency: int
    variants: tuple[str, ...]
    slower_pct: float


def slow_blocks(plan: Plan, cells: Iterable[Cell]) -> tuple[SlowBlock, ...]:
    """What `modes` lifts when it judges each variant against its control, in the order of blocks and concurrencies.

    Block differences hold none of it: they are taken inside a block.
    """
    table = CellTable(plan, cells)
    found: dict[tuple[int, int], list[tuple[Contrast, float]]] = defaultdict(list)
    for contrast in (c for c in map(table.contrast, plan.controls) if len(c.blocks) >= MIN_BLOCKS):
        losses = shared_losses(contrast.log_rate)
        for i, level in np.argwhere(losses > 0):
            place = contrast.blocks[i], plan.concurrencies[level]
            found[place].append((contrast, float(losses[i, level])))
    return tuple(_slow_block(plan, *place, lifted) for place, lifted in sorted(found.items(), key=lambda item: item[0]))


def _slow_block(plan: Plan, block: int, concurrency: int, lifted: list[tuple[Contrast, float]]) -> SlowBlock:
    slow = {name for contrast, _ in lifted for name in (contrast.control, contrast.variant)}
    least = min(loss for _, loss in lifted)
    return SlowBlock(block, concurrency, tuple(v for v in plan.variants if v in slow), -percent(-least))
