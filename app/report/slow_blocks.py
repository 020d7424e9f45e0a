"""Blocks that were slow as a whole, as on a slower host or at a busy hour, in the words of every kind of report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.report.campaign_view import CampaignView
from app.report.wording import listed, number
from loadtest.judge import slow_blocks as judge

RULE = (
    "Blocks slow as a whole: every start of the variants named is at least so far behind the fastest start of its "
    "variant. They are the blocks that the judge lifts when it looks for two modes; no effect holds any of it, since "
    "differences are taken inside a block"
)


def records(view: CampaignView) -> list[dict[str, Any]]:
    """One record per block and concurrency for summary.json; none where nothing was judged."""
    return [
        {"block": b.block, "concurrency": b.concurrency, "variants": list(b.variants), "slower_pct": b.slower_pct}
        for b in _found(view)
    ]


def lines(view: CampaignView) -> tuple[str, ...]:
    """'block 4 is slow in every start of all its variants: by 2.1 % at C=48 and 1.9 % at C=64'."""
    told: dict[tuple[int, tuple[str, ...]], list[judge.SlowBlock]] = {}
    for one in _found(view):
        told.setdefault((one.block, one.variants), []).append(one)
    return tuple(_line(view, variants, levels) for (_, variants), levels in told.items())


def _found(view: CampaignView) -> tuple[judge.SlowBlock, ...]:
    return judge.slow_blocks(view.plan, view.cells) if view.judged else ()


def _line(view: CampaignView, variants: tuple[str, ...], levels: Sequence[judge.SlowBlock]) -> str:
    whose = "all its variants" if variants == view.variants else listed(variants)
    losses = listed(f"{number(one.slower_pct, 1)} % at C={one.concurrency}" for one in levels)
    return f"block {levels[0].block + 1} is slow in every start of {whose}: by {losses}"
