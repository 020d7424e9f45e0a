"""Statistics of block differences of log throughput; every function works on one campaign or on thousands at once.

Arrays end in (blocks, levels) or (levels); any leading axes are campaigns. Effects are natural logs of rate ratios.
Sources: Holm 1979, Hochberg 1988, Schuirmann 1987 (two one-sided tests), Westfall and Young 1993 (max-t).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from app.errors import InvalidCampaignError

Floats = NDArray[np.float64]

SIGN_FLIP_BLOCKS = 8
EXACT_FLIPS = 14
MAX_T_DRAWS = 40_000
RHO_STEP = 0.05
# Differences of equal rates are rounding, not a variance: a standard error below this counts as this.
MIN_SE = 1e-9


@dataclass(frozen=True, slots=True)
class Fit:
    """Effect with its standard error per level, df degrees of freedom, residuals (..., blocks, levels).

    leverage is the variance of the effect in units of one block difference's variance (1/blocks when balanced).
    """

    effect: Floats
    se: Floats
    sd: Floats
    df: int
    leverage: float
    residuals: Floats


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that rules need about each level: pointwise and simultaneous intervals and adjusted p values."""

    fit: Fit
    low: Floats
    high: Floats
    simultaneous_low: Floats
    simultaneous_high: Floats
    p: Floats
    p_holm: Floats
    p_noninferior: Floats
    p_equivalent: Floats


def fit_effect(differences: Floats, position: Floats | None = None) -> Fit:
    """Least squares of block differences on a constant and, where it varies, on the position of the arms in the block.

    position (blocks,): mean start index of the variant minus that of the control; 0 in a mirrored block, so that only
    single-order designs pay the degree of freedom that takes linear drift out of their effect.
    """
    design = _design(differences.shape[-2], position)
    df = design.shape[0] - design.shape[1]
    if df < 1:
        raise InvalidCampaignError(f"{design.shape[0]} usable blocks leave no degree of freedom; run more blocks")
    solve = np.linalg.pinv(design)
    beta = np.einsum("pn,...nl->...pl", solve, differences)
    residuals = differences - np.einsum("np,...pl->...nl", design, beta)
    sd = np.sqrt((residuals**2).sum(axis=-2) / df)
    leverage = float((solve[0] ** 2).sum())
    return Fit(beta[..., 0, :], np.maximum(sd * leverage**0.5, MIN_SE), sd, df, leverage, residuals)


def analyse(differences: Floats, position: Floats | None, alpha: float, delta: float) -> Analysis:
    """Intervals at 1 - alpha and p values of every level's effect, for a margin of delta (0.01 = 1 %)."""
    f = fit_effect(differences, position)
    half = stats.t.ppf(1 - alpha / 2, f.df) * f.se
    wide = np.asarray(max_t(f, alpha))[..., None] * f.se
    p = two_sided(f)
    not_worse = stats.t.sf((f.effect - np.log1p(-delta)) / f.se, f.df)
    not_better = stats.t.sf((np.log1p(delta) - f.effect) / f.se, f.df)
    equivalent = hochberg(np.maximum(not_worse, not_better))
    sides = (f.effect - half, f.effect + half, f.effect - wide, f.effect + wide)
    return Analysis(f, *sides, p, holm(p), not_worse, equivalent)


def two_sided(f: Fit) -> Floats:
    """Two-sided t p value of no effect."""
    return np.asarray(2 * stats.t.sf(np.abs(f.effect) / f.se, f.df))


def holm(p: Floats) -> Floats:
    """Holm's adjusted p values over the last axis: family-wise error under any dependence."""
    order = np.argsort(p, axis=-1, kind="stable")
    scaled = np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1)
    return _unsorted(np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0), order)


def hochberg(p: Floats) -> Floats:
    """Hochberg's adjusted p values over the last axis: for tests free of negative dependence, as levels are."""
    order = np.argsort(p, axis=-1, kind="stable")
    scaled = np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1)
    falling = np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]
    return _unsorted(np.minimum(falling, 1.0), order)


def max_t(f: Fit, alpha: float) -> Floats:
    """Critical value of the largest |t| over the levels, shape (...): Gaussian, at the levels' mean correlation.

    Bonferroni's value where there is one level; the mean correlation of the residuals is rounded down to a grid.
    """
    levels = f.effect.shape[-1]
    if levels == 1:
        return np.full(f.effect.shape[:-1], stats.t.ppf(1 - alpha / 2, f.df))
    steps = np.floor(mean_correlation(f.residuals) / RHO_STEP + 1e-9).astype(int)
    steps = np.clip(steps, 0, round(1 / RHO_STEP) - 1)
    found, place = np.unique(steps, return_inverse=True)
    return np.array([_max_t_at(f.df, levels, alpha, int(s)) for s in found])[place].reshape(steps.shape)


def mean_correlation(residuals: Floats) -> Floats:
    """Mean off-diagonal correlation of the levels' residuals, shape (...)."""
    levels = residuals.shape[-1]
    norm = np.sqrt((residuals**2).sum(axis=-2, keepdims=True))
    unit = residuals / np.where(norm > 0, norm, 1.0)
    total = (unit.sum(axis=-1) ** 2).sum(axis=-1)
    return np.asarray((total - levels) / (levels * (levels - 1)))


def sign_flip(differences: Floats) -> Floats | None:
    """Two-sided sign-flip p value per level; None under 8 blocks, where it cannot pass a family of six.

    Exact up to 14 blocks, beyond that over a fixed sample of flips. Only for differences free of position effects.
    """
    blocks = differences.shape[-2]
    if blocks < SIGN_FLIP_BLOCKS:
        return None
    sums = np.abs(np.einsum("fn,...nl->...fl", _flips(blocks), differences))
    observed = np.abs(differences.sum(axis=-2))[..., None, :]
    return np.asarray((sums >= observed * (1 - 1e-12)).mean(axis=-2))


def hodges_lehmann(differences: Floats) -> Floats:
    """Median of the pairwise means of the block differences: an estimate that one wild block cannot carry away."""
    i, j = np.triu_indices(differences.shape[-2])
    return np.asarray(np.median((differences[..., i, :] + differences[..., j, :]) / 2, axis=-2))


def _design(blocks: int, position: Floats | None) -> Floats:
    constant = np.ones((blocks, 1))
    if position is None or not np.any(position):
        return constant
    if np.ptp(position) == 0:
        raise InvalidCampaignError(
            f"the variant stands {position[0]:+g} starts from its control in all {blocks} usable blocks: "
            "drift cannot be told from effect; run blocks of the other order or use the mirrored design"
        )
    return np.column_stack([constant, position])


def _unsorted(values: Floats, order: NDArray[np.intp]) -> Floats:
    out = np.empty_like(values)
    np.put_along_axis(out, order, values, -1)
    return out


@lru_cache(maxsize=4096)
def _max_t_at(df: int, levels: int, alpha: float, step: int) -> float:
    rho = step * RHO_STEP
    common, own = _normals(df, levels)
    z = rho**0.5 * common + (1 - rho) ** 0.5 * own
    t = np.abs(z[:, 0]) / np.sqrt((z[:, 1:] ** 2).mean(axis=1))
    bonferroni = float(stats.t.ppf(1 - alpha / 2 / levels, df))
    return min(float(np.quantile(t.max(axis=-1), 1 - alpha)), bonferroni)


@lru_cache(maxsize=1)
def _normals(df: int, levels: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng([df, levels])
    return rng.standard_normal((MAX_T_DRAWS, df + 1, 1)), rng.standard_normal((MAX_T_DRAWS, df + 1, levels))


@lru_cache(maxsize=16)
def _flips(blocks: int) -> Floats:
    # The first block's sign is fixed: a flip and its opposite give the same |sum|.
    if blocks <= EXACT_FLIPS:
        bits = (np.arange(2 ** (blocks - 1))[:, None] >> np.arange(blocks - 1)) & 1
        return np.column_stack([np.ones(len(bits)), 1.0 - 2.0 * bits])
    sample = np.random.default_rng(blocks).choice([-1.0, 1.0], size=(2 ** (EXACT_FLIPS - 1), blocks))
    sample[0] = 1.0
    return np.asarray(sample)
