from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from app.errors import UsageError
from loadtest.judge import power
from loadtest.judge.facts import Facts
from loadtest.judge.forecast import Pace, Pilot, forecast, seen, seen_in
from loadtest.judge.verdict import judge
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Plan

LEVELS = (1, 8, 48, 64, 80, 96)
PACE = Pace(start_s=120, level_s=90)
KNOWN = Pilot("mirrored", dict.fromkeys(LEVELS, 0.005), None, "assumed")


@pytest.mark.parametrize(
    ("blocks", "sd", "alone", "of_six"),
    [(4, 0.005, 1.06, 1.98), (6, 0.005, 0.71, 1.10), (8, 0.003, 0.35, 0.50), (10, 0.01, 0.99, 1.37)],
)
def test_detectable_effects_are_the_published_ones(blocks: int, sd: float, alone: float, of_six: float) -> None:
    for levels, want in ((1, alone), (6, of_six)):
        got = 100 * power.detectable_effect(sd, blocks, 1, 0.05, levels, power=0.8)
        assert got == pytest.approx(want, abs=0.011)


def test_power_agrees_with_simulated_campaigns() -> None:
    d = np.random.default_rng(3).normal(0.006, 0.005, (20_000, 8))
    t = np.abs(d.mean(axis=1)) / (d.std(axis=1, ddof=1) / math.sqrt(8))
    want = (t > 2.3646).mean()
    assert power.power_of_difference(0.006, 0.005, 8, 1, 0.05) == pytest.approx(want, abs=0.01)


@pytest.mark.parametrize("effect", [-0.9, -0.07, 5.0])
def test_power_far_out_is_one_and_without_effect_is_alpha(effect: float) -> None:
    assert power.power_of_difference(effect, 0.0005, 8, 1, 0.05, 6) == pytest.approx(1)
    assert power.power_of_difference(0.0, 0.0005, 8, 1, 0.05) == pytest.approx(0.05)


def test_planned_blocks_are_the_fewest_that_reach_the_power() -> None:
    n = power.blocks_for_difference(0.01, 0.008, 1, 0.05, 6)
    assert n is not None
    assert power.power_of_difference(0.01, 0.008, n, 1, 0.05, 6) >= 0.9
    assert power.power_of_difference(0.01, 0.008, n - 1, 1, 0.05, 6) < 0.9


def test_an_effect_beyond_reach_has_no_number_of_blocks() -> None:
    assert power.blocks_for_difference(0.0001, 0.02, 1, 0.05, 6) is None
    assert power.blocks_for_equivalence(0.02, 0.001, 1, 0.05, 0.01) is None


def test_non_inferiority_everywhere_needs_more_than_at_one_level() -> None:
    one, six = (power.blocks_for_noninferiority(0.008, 1, 0.05, 0.01, levels) for levels in (1, 6))
    assert one is not None
    assert six is not None
    assert 4 <= one < six


def test_a_small_pilot_is_planned_with_a_larger_sd() -> None:
    pilots = [replace(KNOWN, df=df) for df in (3, 20, None)]
    sds = [p.planned_sd(96) for p in pilots]
    assert sds[0] > 1.5 * sds[2]
    assert sds[0] > sds[1] > sds[2] == 0.005


def test_forecast_names_blocks_hours_and_what_smaller_campaigns_see() -> None:
    found = forecast(KNOWN, PACE, -0.02)
    assert found.blocks == 5
    assert found.hours == pytest.approx(5 * 4 * (120 + 6 * 90) / 3600)
    assert [s.blocks for s in found.choices] == [4, 6, 8, 10, 12, 16]
    assert found.choices[0].detectable_pct[96] > 2 > found.choices[1].detectable_pct[96]


def test_the_noisiest_concurrency_sets_the_blocks() -> None:
    uneven = replace(KNOWN, sd={1: 0.015, 96: 0.003})
    found = forecast(uneven, PACE, 0.02)
    assert found.blocks == found.blocks_by_level[1]
    assert found.blocks_by_level[96] == 4


def test_single_design_halves_the_starts() -> None:
    assert PACE.hours(2, 6, "single", 8) == PACE.hours(2, 6, "mirrored", 8) / 2


def test_hours_at_hand_tell_what_can_be_seen() -> None:
    assert seen_in(KNOWN, PACE, 6).blocks == 8
    assert seen(KNOWN, PACE, 8).detectable_pct[1] == pytest.approx(0.93, abs=0.02)


def test_hours_too_short_for_a_verdict_are_refused() -> None:
    with pytest.raises(UsageError, match=r"hold 2 blocks.*needs 4"):
        seen_in(KNOWN, PACE, 2)


@pytest.mark.parametrize(("effect", "target"), [(0.0, 0.9), (0.02, 1.0), (-1.0, 0.9)])
def test_an_impossible_wish_is_refused(effect: float, target: float) -> None:
    with pytest.raises(UsageError, match="give an effect other than 0"):
        forecast(KNOWN, PACE, effect, target=target)


def test_a_pilot_is_read_from_a_campaign_and_from_its_verdict_alike() -> None:
    plan = Plan(2, {"same": "pinned"}, LEVELS, 6)
    cells = simulate(plan, {}, Noise("quiet"), 1, np.random.default_rng(0)).cells(0)
    measured = Pilot.from_campaign(plan, cells, "pilot")
    told = Pilot.from_verdict(judge(plan, cells, Facts("aa", simulated=True)).to_json())
    assert measured.df == told.df == 5
    assert told.source == "campaign aa"
    assert [told.sd[c] for c in LEVELS] == pytest.approx([measured.sd[c] for c in LEVELS], rel=1e-4)


def test_a_pilot_without_noise_is_refused() -> None:
    with pytest.raises(UsageError, match="positive sd"):
        Pilot("mirrored", {1: 0.0}, None, "nothing")
