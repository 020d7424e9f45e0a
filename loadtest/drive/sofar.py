"""The raw interval of a campaign that still runs: shown beside the live figures, never a verdict."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from app.errors import LabError
from loadtest.cells import Cell, read_cells
from loadtest.judge.contrast import CellTable
from loadtest.judge.stats import analyse
from loadtest.order import StartOrder
from loadtest.plan import Plan


def intervals_so_far(order: StartOrder) -> list[dict[str, Any]]:
    """Pointwise effect of the order's variant against its control per level, from the campaign's whole blocks so far.

    Empty outside a campaign, before two blocks are whole, and for a control.
    """
    campaign = order.out.parents[2] if len(order.out.parents) > 2 else order.out
    plan_file = campaign / "plan.json"
    if not order.control or not plan_file.exists():
        return []
    try:
        plan = Plan.from_json(json.loads(plan_file.read_text()))
        return _intervals(plan, order.variant, _cells(campaign))
    except (LabError, OSError, ValueError, KeyError, TypeError):
        return []  # another process is writing there; the next look reads it whole


def _cells(campaign: Path) -> list[Cell]:
    return [cell for path in sorted(campaign.glob("blocks/*/*/cells.csv")) for cell in read_cells(path)]


def _intervals(plan: Plan, variant: str, cells: list[Cell]) -> list[dict[str, Any]]:
    contrast = CellTable(plan, cells).contrast(variant)
    if len(contrast.blocks) < 2:
        return []
    found = analyse(contrast.differences, None, plan.alpha, plan.delta)
    return [
        {
            "concurrency": level,
            "blocks": len(contrast.blocks),
            "effect_pct": _percent(found.fit.effect[i]),
            "low_pct": _percent(found.low[i]),
            "high_pct": _percent(found.high[i]),
        }
        for i, level in enumerate(plan.concurrencies)
    ]


def _percent(log_ratio: float) -> float:
    return round(100 * math.expm1(float(log_ratio)), 2)
