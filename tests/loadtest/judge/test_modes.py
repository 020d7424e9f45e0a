from __future__ import annotations

import numpy as np
import pytest

from loadtest.judge.modes import Modes, find_modes, share_p, unclear
from loadtest.judge.stats import Floats


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


def test_a_step_between_blocks_shared_by_both_arms_is_drift() -> None:
    rates = runs()
    rates[5:] -= 0.01
    assert not find_modes(rates).bimodal.any()


def test_thousands_of_campaigns_are_searched_as_each_alone() -> None:
    rates = np.stack([runs(seed=s) for s in range(20)])
    rates[7, 0, 0, 0] -= 0.07
    found = find_modes(rates).bimodal
    assert found.any(axis=1).tolist() == [s == 7 for s in range(20)]


def test_share_of_slow_runs_is_compared_as_a_proportion() -> None:
    slow = np.zeros((2, 16), dtype=bool)
    slow[1, :8] = True
    assert share_p(slow) < 0.01
    assert share_p(np.ones((2, 16), dtype=bool)) == pytest.approx(1.0)
