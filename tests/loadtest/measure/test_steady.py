"""A trend is told from noise, and a warm-up is cut off where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.measure.steady import drift, mser

RNG = np.random.default_rng(5)


def ar1(n: int, rho: float, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    noise = np.zeros(n)
    for i in range(1, n):
        noise[i] = rho * noise[i - 1] + rng.normal()
    return noise


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_steady_noise_is_rarely_called_a_drift(rho: float) -> None:
    rng = np.random.default_rng(7)
    called = sum(drift(100 + ar1(60, rho, rng)).p < 0.01 for _ in range(1000))
    assert called <= 30


def test_two_percent_ramp_is_found() -> None:
    series = np.linspace(99, 101, 60) + RNG.normal(0, 0.3, 60)
    found = drift(series)
    assert found.matters(0.01, 0.01)
    assert found.relative == pytest.approx(0.02, abs=0.003)


def test_small_but_certain_drift_does_not_matter() -> None:
    assert not drift(np.linspace(100, 100.1, 60)).matters(0.01, 0.01)


@pytest.mark.parametrize("series", [np.zeros(0), np.ones(3), np.zeros(60)])
def test_nothing_is_said_of_too_little(series: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert drift(series).p == 1


def test_perfectly_level_series_does_not_drift() -> None:
    assert not drift(np.full(60, 7.0)).matters(0.01, 0.0)


def test_mser_cuts_a_warm_up_where_it_ends() -> None:
    series = 100 + RNG.normal(0, 1, 60)
    series[:20] -= np.linspace(40, 2, 20)
    assert 15 <= mser(series) <= 25


def test_mser_cuts_at_most_half() -> None:
    assert mser(np.linspace(1, 100, 60)) <= 30


def test_mser_leaves_a_steady_series_nearly_whole() -> None:
    cuts = [mser(100 + np.random.default_rng(i).normal(0, 1, 60)) for i in range(200)]
    assert np.median(cuts) <= 10
