"""Whether a series is steady, by evidence: a slope test that knows of autocorrelation, and MSER against warm-up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
MIN_BINS = 8


@dataclass(frozen=True, slots=True)
class Drift:
    """A straight line through a series: its p value, and its rise over the whole series relative to the mean."""

    p: float
    relative: float

    def matters(self, alpha: float, delta: float) -> bool:
        """Both beyond chance and large enough to bias a comparison at delta."""
        return self.p < alpha and abs(self.relative) > delta


def drift(series: Floats) -> Drift:
    """The drift of evenly spaced values; p is 1 when there are too few to tell.

    The residuals' lag-1 correlation shrinks the degrees of freedom when it is positive: a closed loop's throughput
    swings with the length of its requests, and a plain regression would call half of those swings a trend.
    """
    n, mean = len(series), float(np.mean(series)) if len(series) else 0.0
    if n < MIN_BINS or mean <= 0:
        return Drift(1.0, 0.0)
    x = np.arange(n, dtype=np.float64)
    fit = stats.linregress(x, series)
    residuals = series - (fit.intercept + fit.slope * x)
    spread = float(residuals @ residuals)
    relative = float(fit.slope * (n - 1) / mean)
    if spread <= 1e-18 * mean * mean * n:
        return Drift(0.0 if abs(relative) > 1e-9 else 1.0, relative)
    rho = max(0.0, float(residuals[1:] @ residuals[:-1]) / spread)
    effective = max(3.0, n * (1 - rho) / (1 + rho))
    error = fit.stderr * np.sqrt((n - 2) / (effective - 2)) if effective > 2 else np.inf
    return Drift(float(2 * stats.t.sf(abs(fit.slope) / error, effective - 2)), relative)


def mser(series: Floats, batch: int = 5) -> int:
    """How many leading values to discard (White's MSER over means of `batch`); at most half of them."""
    batch = batch if len(series) >= 8 * batch else 1
    means = series[: len(series) // batch * batch].reshape(-1, batch).mean(axis=1)
    limit = len(means) // 2
    if limit < 1:
        return 0
    scores = [float(np.var(means[d:]) / (len(means) - d)) for d in range(limit + 1)]
    return int(np.argmin(scores)) * batch
