"""Campaigns that another load driver measured: who of them is judged against whom."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import UsageError
from app.kernel.variants import Registry


def measured_pairs(registry: Registry, names: Sequence[str]) -> dict[str, str]:
    """Those of the measured variants whose own control was measured too, with it; the others are controls only."""
    named = [registry.get(name) for name in dict.fromkeys(names)]
    measured = {variant.name for variant in named}
    pairs = {v.name: v.control for v in named if v.control and v.control in measured}
    if idle := [v for v in named if v.name not in {*pairs, *pairs.values()}]:
        missing = f"its control {idle[0].control}" if idle[0].control else "a variant that it is the control of"
        raise UsageError(
            f"variant {idle[0].name!r} would be compared with nothing: measure {missing} beside it, or narrow what is "
            "judged with --variants"
        )
    return pairs
