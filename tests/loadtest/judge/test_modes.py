from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadtest.judge.modes import Modes, find_modes, share_p, unclear
from loadtest.judge.stats import Floats

# Tokens per second of an H200 campaign, four blocks on hosts of their own: the control's, then the variant's.
SLOW_HOST = [[12632, 12509, 12489, 12210], [12865, 12787, 12752, 12412]]
SLOW_STARTS = [[18470, 18415, 17954, 17914], [18973, 18980, 18878, 18295]]


def runs(blocks: int = 8, repeats: int = 2, levels: int = 6, seed: int = 0) -> Floats:
    return 0.005 * np.random.default_rng(seed).standard_normal((blocks, 2, repeats, levels))


def test_one_mode_is_not_called_two() -> None:
    assert not find_modes(runs()).bimodal.any()


def test_a_true_difference_between_arms_is_not_a_second_mode() -> None:
    rates = runs()
    rates[:, 1] -= 0.16
    assert not find_modes(rates).bimodal.any()


@pytest.mark.parametrize("slow_starts", [1, 3, 8, 15])
def test_slow_starts_of_one_arm_are_found_and_counted(slow_starts: int) -> None:
    rates = runs()
    slow = np.arange(16).reshape(8, 2) < slow_starts
    rates[:, 1][slow] -= 0.07
    modes = find_modes(rates)
    assert modes.bimodal.all()
    assert (modes.slow.sum(axis=1) == np.array([[0] * 6, [slow_starts] * 6])).all()


@pytest.mark.parametrize(("blocks", "claimed"), [(3, False), (4, True)])
def test_no_modes_are_claimed_of_fewer_blocks_than_a_verdict_needs(blocks: int, claimed: bool) -> None:
    rates = runs(blocks)
    rates[0, 1] -= 0.2
    assert find_modes(rates).bimodal.all() == claimed


def test_a_stall_at_one_level_leaves_the_others_alone() -> None:
    rates = runs()
    rates[2, 0, 1, 3] -= 0.07
    assert find_modes(rates).bimodal.tolist() == [False, False, False, True, False, False]


@pytest.mark.parametrize(
    ("low", "high", "kept_back"), [(-0.19, -0.10, False), (-0.19, -0.02, True), (0.01, 0.02, True), (0.04, 0.05, False)]
)
def test_two_modes_keep_back_only_what_they_could_make(low: float, high: float, kept_back: bool) -> None:
    modes = Modes(np.array([True]), np.array([9.0]), np.array([0.03]), np.zeros((2, 4, 1), dtype=bool))
    assert unclear(modes, np.array([low]), np.array([high])).tolist() == [kept_back]


def measured(*levels: list[list[int]]) -> Floats:
    return np.asarray(np.log(levels)).transpose(2, 1, 0)[:, :, None, :]


def test_a_host_slow_in_both_arms_is_no_second_mode_and_starts_slow_in_one_are() -> None:
    modes = find_modes(measured(SLOW_HOST, SLOW_STARTS))
    assert modes.bimodal.tolist() == [False, True]
    assert modes.slow[..., 1].sum(axis=1).tolist() == [2, 1]


@pytest.mark.parametrize(("blocks", "repeats"), [(4, 1), (4, 2), (8, 2), (16, 2)])
@pytest.mark.parametrize("loss", [0.03, 0.24])
def test_blocks_slow_in_every_start_show_no_modes(blocks: int, repeats: int, loss: float) -> None:
    rates = runs(blocks, repeats)
    rates[: blocks // 3] -= loss
    assert not find_modes(rates).bimodal.any()


def test_hosts_of_three_speeds_show_no_modes() -> None:
    rates = runs()
    rates[1:3] -= 0.05
    rates[6] -= 0.2
    assert not find_modes(rates).bimodal.any()


def test_a_slow_host_does_not_hide_slow_starts() -> None:
    rates = runs()
    rates[1:3] -= 0.24
    rates[2, 0, 1] -= 0.07
    rates[5, 1, 0] -= 0.07
    modes = find_modes(rates)
    assert modes.bimodal.all()
    assert modes.gap == pytest.approx(0.07, abs=0.01)
    assert (modes.slow.sum(axis=1) == 1).all()


@pytest.mark.parametrize(("slow", "follows"), [(np.s_[2, 0, 0, 0], True), (np.s_[2, :, :, 0], False)])
def test_slow_starts_at_one_level_let_another_follow_and_a_slow_block_does_not(slow: Any, follows: bool) -> None:
    rates = runs(4, 1)
    rates[1:3, 0, 0, 1] -= 0.016
    assert not find_modes(rates).bimodal.any()
    rates[slow] -= 0.2
    assert find_modes(rates).bimodal[:2].tolist() == [follows, follows]


def test_a_step_between_blocks_shared_by_both_arms_is_drift() -> None:
    rates = runs()
    rates[5:] -= 0.01
    assert not find_modes(rates).bimodal.any()


def test_thousands_of_campaigns_are_searched_as_each_alone() -> None:
    rates = np.stack([runs(seed=s) for s in range(20)])
    rates[7, 0, 0, 0] -= 0.07
    found = find_modes(rates).bimodal
    assert found.any(axis=1).tolist() == [s == 7 for s in range(20)]


def test_slow_blocks_are_lifted_in_their_own_campaign_alone() -> None:
    rates = np.stack([runs(seed=s) for s in range(20)])
    rates[3, 2:5] -= 0.1
    rates[3:9, 4, 1, 0] -= 0.06
    together, alone = find_modes(rates), [find_modes(r) for r in rates]
    assert together.bimodal.tolist() == [m.bimodal.tolist() for m in alone]
    np.testing.assert_allclose(together.separation, [m.separation for m in alone])


def test_share_of_slow_runs_is_compared_as_a_proportion() -> None:
    slow = np.zeros((2, 16), dtype=bool)
    slow[1, :8] = True
    assert share_p(slow) < 0.01
    assert share_p(np.ones((2, 16), dtype=bool)) == pytest.approx(1.0)
