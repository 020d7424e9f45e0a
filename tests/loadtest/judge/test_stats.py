from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as reference

from app.errors import InvalidCampaignError
from loadtest.judge import stats
from loadtest.judge.stats import Floats

MIRRORED = None


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape)


def test_mirrored_effect_and_p_are_those_of_a_paired_t_test() -> None:
    d = normal(8, 1) * 0.005 + 0.004
    a = stats.analyse(d, MIRRORED, 0.05, 0.01)
    want = reference.ttest_1samp(d[:, 0], 0.0)
    assert a.p[0] == pytest.approx(want.pvalue)
    interval = want.confidence_interval(0.95)
    assert (a.low[0], a.high[0]) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_thousands_of_campaigns_are_analysed_as_each_alone() -> None:
    d = normal(50, 6, 4)
    together, alone = stats.analyse(d, MIRRORED, 0.05, 0.01), stats.analyse(d[17], MIRRORED, 0.05, 0.01)
    np.testing.assert_allclose(together.p_holm[17], alone.p_holm)
    np.testing.assert_allclose(together.simultaneous_low[17], alone.simultaneous_low)


def test_linear_drift_leaves_a_single_order_effect_unbiased() -> None:
    position = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    d = 0.02 + 0.5 * position[:, None]
    assert stats.fit_effect(d, position).effect[0] == pytest.approx(0.02)
    assert d.mean() != pytest.approx(0.02)


def test_one_order_of_starts_only_is_refused() -> None:
    with pytest.raises(InvalidCampaignError, match="drift cannot be told from effect"):
        stats.fit_effect(normal(4, 2), np.ones(4))


def test_too_few_blocks_are_refused() -> None:
    with pytest.raises(InvalidCampaignError, match="no degree of freedom"):
        stats.fit_effect(normal(1, 2))


@pytest.mark.parametrize(
    ("p", "holm", "hochberg"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06], [0.03, 0.04, 0.04]),
        ([0.5], [0.5], [0.5]),
        ([0.04, 0.04], [0.08, 0.08], [0.04, 0.04]),
        ([0.9, 0.9], [1.0, 1.0], [0.9, 0.9]),
    ],
)
def test_adjusted_p_values_are_those_worked_by_hand(p: list[float], holm: list[float], hochberg: list[float]) -> None:
    np.testing.assert_allclose(stats.holm(np.array(p)), holm)
    np.testing.assert_allclose(stats.hochberg(np.array(p)), hochberg)


def test_equivalence_needs_both_one_sided_tests() -> None:
    tight, near_edge = normal(8, 1) * 0.001, normal(8, 1) * 0.001 + 0.0099
    assert stats.analyse(tight, MIRRORED, 0.05, 0.01).p_equivalent[0] < 0.001
    assert stats.analyse(near_edge, MIRRORED, 0.05, 0.01).p_equivalent[0] > 0.05


def test_simultaneous_interval_lies_between_pointwise_and_bonferroni() -> None:
    shared = normal(8, 1) + 0.3 * normal(8, 6, seed=1)
    f = stats.fit_effect(shared)
    critical = float(stats.max_t(f, 0.05))
    assert reference.t.ppf(0.975, 7) < critical < reference.t.ppf(1 - 0.025 / 6, 7)


def test_max_t_of_one_level_is_the_pointwise_t_and_of_equal_levels_near_it() -> None:
    one = normal(8, 1)
    assert float(stats.max_t(stats.fit_effect(one), 0.05)) == pytest.approx(reference.t.ppf(0.975, 7))
    equal = stats.fit_effect(np.repeat(one, 6, axis=1))
    assert float(stats.max_t(equal, 0.05)) < 1.25 * reference.t.ppf(0.975, 7)


def test_sign_flip_p_counts_the_flips_at_least_as_far_out() -> None:
    p = stats.sign_flip(np.arange(1.0, 9.0)[:, None])
    assert p is not None
    assert p[0] == pytest.approx(2 / 2**8)


def test_sign_flip_is_not_offered_under_eight_blocks() -> None:
    assert stats.sign_flip(normal(7, 2)) is None


def test_sign_flip_beyond_exact_enumeration_agrees_with_the_t_test() -> None:
    d = normal(16, 1) * 0.005 + 0.001
    p = stats.sign_flip(d)
    assert p is not None
    assert p[0] == pytest.approx(stats.two_sided(stats.fit_effect(d))[0], abs=0.03)


def test_hodges_lehmann_ignores_one_wild_block() -> None:
    d = np.array([0.01, 0.011, 0.009, 0.01, 0.0101, 0.0099, 0.5])[:, None]
    assert stats.hodges_lehmann(d)[0] == pytest.approx(0.01, abs=0.001)


def test_identical_rates_give_no_nan() -> None:
    a = stats.analyse(np.zeros((4, 2)), MIRRORED, 0.05, 0.01)
    assert np.isfinite(a.simultaneous_low).all()
    assert (a.p == 1).all()
