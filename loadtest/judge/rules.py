"""The decision rules, on one campaign or thousands: what each level may be called, and what becomes of the variant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.judge.stats import Analysis

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Truth of each claim: better to regressed and withheld have shape (..., levels), accept and reject (...).

    better, worse: Holm's p of no effect at or under alpha. equivalent: both one-sided tests against delta, Hochberg
    over levels, and neither better nor worse. noninferior: one-sided test against -delta at alpha, for the claim "at
    all levels". regressed: simultaneous interval wholly under -delta. withheld: two modes that could make
    the effect, so that none is claimed.
    """

    better: Bools
    worse: Bools
    equivalent: Bools
    noninferior: Bools
    regressed: Bools
    withheld: Bools
    accept: Bools
    reject: Bools


def decide(a: Analysis, withheld: Bools, alpha: float, delta: float) -> Outcomes:
    """Applies the rules of docs/statistics.md to an analysis made with the same alpha and delta."""
    shown = (a.p_holm <= alpha) & ~withheld
    better, worse = shown & (a.fit.effect > 0), shown & (a.fit.effect < 0)
    equivalent = (a.p_equivalent <= alpha) & ~withheld & ~better & ~worse
    noninferior = (a.p_noninferior <= alpha) & ~withheld
    regressed = (a.simultaneous_high < np.log1p(-delta)) & ~withheld
    accept = np.asarray(better.any(axis=-1) & noninferior.all(axis=-1))
    reject = np.asarray(regressed.any(axis=-1))
    return Outcomes(better, worse, equivalent, noninferior, regressed, withheld, accept, reject)
