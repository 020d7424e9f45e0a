from __future__ import annotations

import numpy as np
import pytest

from loadtest.judge.virtual import Campaigns, Noise, simulate
from loadtest.plan import Design, Plan

LEVELS = (1, 48, 96)
SILENT = Noise("silent", start_sd=0.0, cell_sd=0.0)


def drawn(noise: Noise = SILENT, effect: float = 0.0, campaigns: int = 1, design: Design = "mirrored") -> Campaigns:
    plan = Plan(5, {"changed": "control"}, LEVELS, 4, design=design)
    return simulate(plan, {"changed": np.full(3, effect)}, noise, campaigns, np.random.default_rng(1))


def test_the_true_effect_is_what_differs_without_noise() -> None:
    rates, _ = drawn(effect=-0.07).arms("changed")
    np.testing.assert_allclose(rates[:, :, 1] - rates[:, :, 0], np.log(0.93))


def test_arms_follow_the_plans_order_of_starts() -> None:
    campaigns = drawn(effect=0.5)
    for block in range(4):
        order = [s.variant for s in campaigns.plan.starts(block)]
        fast = campaigns.log_rate[0, block, :, 0] > campaigns.log_rate[0, block, :, 0].min()
        assert [v == "changed" for v in order] == fast.tolist()


def test_drift_follows_the_order_in_which_levels_are_visited() -> None:
    campaigns = drawn(Noise("warm-up", 0, 0, warmup=0.5))
    flat = campaigns.log_rate[0] - np.log(100 * np.sqrt(LEVELS))
    first, *_, last = campaigns.plan.starts(0)[0].concurrencies
    assert flat[0, 0, LEVELS.index(first)] < flat[0, 0, LEVELS.index(last)] < flat[0, 1].min()


def test_start_noise_is_shared_by_the_levels_of_a_start() -> None:
    campaigns = drawn(Noise("shared", start_sd=0.01, cell_sd=0.0), campaigns=200)
    spread = campaigns.log_rate - campaigns.log_rate.mean(axis=0)
    np.testing.assert_allclose(spread[..., 0], spread[..., 2], atol=1e-12)
    assert spread.std() == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("noise", [Noise("quiet", 0.003, 0.004), Noise("t", 0.003, 0.004, tails=5)])
def test_noise_has_the_sd_it_names(noise: Noise) -> None:
    rates = drawn(noise, campaigns=2000).log_rate
    assert rates[..., 1].std() == pytest.approx(0.005, rel=0.05)


def test_ar1_drift_has_its_sd_and_forgets_slowly() -> None:
    rates = drawn(Noise("ar", 0, 0, drift_sd=0.01), campaigns=2000).log_rate.reshape(2000, 16, 3)[:, :, 0]
    flat = rates - rates.mean()
    assert flat.std() == pytest.approx(0.01, rel=0.1)
    assert np.corrcoef(flat[:, 0], flat[:, 1])[0, 1] == pytest.approx(0.9, abs=0.06)


def test_stalled_starts_are_slow_at_every_level_and_marked() -> None:
    campaigns = drawn(Noise("stalls", 0, 0, stall_depth=0.07), campaigns=500)
    loss = campaigns.log_rate - np.log(100 * np.sqrt(LEVELS))
    np.testing.assert_allclose(loss, campaigns.slow * np.log(0.93), atol=1e-12)
    assert campaigns.slow.mean() == pytest.approx(0.25, abs=0.02)
    assert (campaigns.slow.all(axis=-1) == campaigns.slow.any(axis=-1)).all()


def test_slow_blocks_are_slow_at_every_start_and_level_and_no_slow_mode() -> None:
    campaigns = drawn(Noise("slow blocks", 0, 0, block_depth=0.03, block_share=0.4), campaigns=500)
    loss = campaigns.log_rate - np.log(100 * np.sqrt(LEVELS))
    slow = loss.mean(axis=(2, 3), keepdims=True) < np.log(0.98)
    np.testing.assert_allclose(loss, np.broadcast_to(slow * np.log(0.97), loss.shape), atol=1e-12)
    assert slow.mean() == pytest.approx(0.4, abs=0.04)
    assert not campaigns.slow.any()


def test_cells_are_the_plans_starts_at_every_level() -> None:
    campaigns = drawn(effect=0.1)
    cells = campaigns.cells(0)
    starts = {(s.block, s.index, s.variant) for b in range(4) for s in campaigns.plan.starts(b)}
    assert {(c.block, c.start, c.variant) for c in cells} == starts
    assert len(cells) == 4 * 4 * 3
    assert all(c.valid for c in cells)


def test_position_is_zero_in_mirrored_blocks_and_alternates_in_single_ones() -> None:
    assert drawn().position("changed").tolist() == [0, 0, 0, 0]
    single = drawn(design="single").position("changed")
    assert sorted(single) == [-1, -1, 1, 1]
