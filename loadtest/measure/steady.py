"""Whether a series is steady, by evidence: a slope test over batch means, and MSER against warm-up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
BATCHES = 12


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

    The line goes through means of a twelfth of the series each: a closed loop's output swings with the length of its
    requests, and a regression over single values would call half of those swings a trend.
    """
    size = len(series) // BATCHES
    if size < 1 or not series.any():
        return Drift(1.0, 0.0)
    means = series[len(series) - size * BATCHES :].reshape(BATCHES, size).mean(axis=1)
    fit = stats.linregress(np.arange(BATCHES), means)
    relative = float(fit.slope * BATCHES / means.mean())
    level = np.ptp(means) <= 1e-9 * abs(means.mean())
    return Drift(1.0 if level else float(fit.pvalue), relative)


def mser(series: Floats, batch: int = 5) -> int:
    """How many leading values to discard (White's MSER over means of `batch`); at most half of them."""
    batch = batch if len(series) >= 8 * batch else 1
    means = series[: len(series) // batch * batch].reshape(-1, batch).mean(axis=1)
    limit = len(means) // 2
    if limit < 1:
        return 0
    scores = [float(np.var(means[d:]) / (len(means) - d)) for d in range(limit + 1)]
    return int(np.argmin(scores)) * batch
