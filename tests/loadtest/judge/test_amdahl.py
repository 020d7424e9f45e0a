from __future__ import annotations

from typing import Any

import pytest

from app.errors import UsageError
from loadtest.judge.amdahl import KernelChange, check_amdahl, predicted_pct


def level(low: float | None, high: float | None, concurrency: int = 96) -> dict[str, Any]:
    return {"concurrency": concurrency, "simultaneous_low_pct": low, "simultaneous_high_pct": high}


def change(time_ratio: float = 1 / 1.1, low: float = 0.08, high: float = 0.08) -> KernelChange:
    return KernelChange(96, time_ratio, low, high, "profile")


@pytest.mark.parametrize(
    ("ratio", "share", "want"), [(0.5, 1.0, 100.0), (0.5, 0.2, 11.11), (2.0, 0.5, -33.33), (1.0, 0.4, 0.0)]
)
def test_prediction_is_amdahls_law(ratio: float, share: float, want: float) -> None:
    assert predicted_pct(ratio, share) == pytest.approx(want, abs=0.01)


@pytest.mark.parametrize(
    ("low", "high", "agreement"),
    [
        (0.3, 1.1, "agrees"),
        (5.5, 6.5, "more than the kernel explains"),
        (0.1, 0.4, "less than the kernel predicts"),
        (-3.0, -1.0, "opposite sign"),
    ],
)
def test_measured_effect_is_set_beside_what_the_kernel_explains(low: float, high: float, agreement: str) -> None:
    found = check_amdahl(change(), level(low, high))
    assert found.agreement == agreement
    assert ("DISAGREES" in str(found)) == (agreement != "agrees")


@pytest.mark.parametrize(
    ("low", "high", "agreement"),
    [(-9.0, -6.0, "agrees"), (-30.0, -20.0, "more than the kernel explains"), (1.0, 2.0, "opposite sign")],
)
def test_a_slower_kernel_is_checked_by_the_same_rule(low: float, high: float, agreement: str) -> None:
    assert check_amdahl(change(67 / 44, 0.1, 0.2), level(low, high)).agreement == agreement


@pytest.mark.parametrize(("ratio", "low", "high"), [(0.0, 0.1, 0.2), (0.9, 0.0, 0.2), (0.9, 0.3, 0.2), (0.9, 0.3, 1.2)])
def test_an_impossible_share_or_ratio_is_refused(ratio: float, low: float, high: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        change(ratio, low, high)


def test_another_concurrency_or_an_invalid_level_is_refused() -> None:
    with pytest.raises(UsageError, match="level is C=1"):
        check_amdahl(change(), level(0, 1, concurrency=1))
    with pytest.raises(UsageError, match="no measured effect"):
        check_amdahl(change(), level(None, None))
