from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.errors import UsageError
from loadtest.cells import Cell
from loadtest.judge.slope import throughput_curve
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Plan

LEVELS = (1, 8, 48, 64, 80, 96)
PLAN = Plan(3, {"changed": "pinned"}, LEVELS, 6)


def cells(rates: tuple[float, ...], plan: Plan = PLAN) -> list[Cell]:
    base = {c: 100 * c**0.5 for c in plan.concurrencies}
    want = dict(zip(plan.concurrencies, rates, strict=True))
    drawn = simulate(plan, {}, Noise("quiet", 0.002, 0.002), 1, np.random.default_rng(1)).cells(0)
    return [replace(c, tokens_per_s=c.tokens_per_s * want[c.concurrency] / base[c.concurrency]) for c in drawn]


@pytest.mark.parametrize(
    ("rates", "trend", "knee"),
    [
        ((30, 180, 600, 700, 780, 845), "rises", None),
        ((30, 180, 800, 802, 801, 800), "flat", 48),
        ((30, 180, 800, 820, 780, 700), "falls", 64),
    ],
)
def test_known_curves_are_told_rightly(rates: tuple[float, ...], trend: str, knee: int | None) -> None:
    curve = throughput_curve(PLAN, cells(rates), "changed")
    assert (curve.answer.start, curve.answer.end, curve.answer.trend) == (48, 96, trend)
    assert curve.knee == knee
    assert trend in str(curve)


def test_slope_is_tokens_per_added_stream() -> None:
    slope, low, high = throughput_curve(PLAN, cells((30, 180, 480, 640, 800, 960)), "pinned").per_stream
    assert low < slope < high
    assert slope == pytest.approx(10, abs=0.1)


def test_the_question_of_60_to_90_can_be_asked() -> None:
    plan = replace(PLAN, concurrencies=(1, 60, 90, 96))
    curve = throughput_curve(plan, cells((30, 700, 701, 720), plan), "changed", question=(60, 90))
    assert (curve.answer.start, curve.answer.end, curve.answer.trend) == (60, 90, "flat")


def test_a_question_about_unmeasured_levels_is_refused() -> None:
    with pytest.raises(UsageError, match="measured concurrencies"):
        throughput_curve(PLAN, cells((1,) * 6), "changed", question=(60, 90))


def test_void_blocks_do_not_count() -> None:
    spoiled = [replace(c, reasons=("throttled",)) if c.block == 0 else c for c in cells((30, 180, 600, 700, 780, 845))]
    assert throughput_curve(PLAN, spoiled, "changed").blocks == 5


def test_too_few_blocks_are_refused() -> None:
    few = [c for c in cells((30, 180, 600, 700, 780, 845)) if c.block < 2]
    with pytest.raises(UsageError, match="2 usable blocks"):
        throughput_curve(PLAN, few, "changed")
