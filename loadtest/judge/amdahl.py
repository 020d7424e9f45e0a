"""Amdahl's check: what a kernel's own change can do to throughput, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import UsageError

Agreement = Literal["agrees", "more than the kernel explains", "less than the kernel predicts", "opposite sign"]


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel measured alone at one batch size: time against the control's, and share of the control's decode step.

    time_ratio: 0.95 is 5 % faster. share: 0.2 is a fifth of the step; share_low and share_high bound it.
    source says where both come from (a profile, a calibration file).
    """

    concurrency: int
    time_ratio: float
    share_low: float
    share_high: float
    source: str

    def __post_init__(self) -> None:
        if self.time_ratio <= 0 or not 0 < self.share_low <= self.share_high <= 1:
            raise UsageError(
                f"kernel time ratio {self.time_ratio} with share {self.share_low} to {self.share_high} at "
                f"C={self.concurrency}: the ratio must be positive, the share between 0 and 1"
            )


@dataclass(frozen=True, slots=True)
class AmdahlCheck:
    """Predicted and measured change of output tokens per second, in percent."""

    concurrency: int
    predicted_low_pct: float
    predicted_high_pct: float
    measured_low_pct: float
    measured_high_pct: float
    agreement: Agreement
    source: str

    def __str__(self) -> str:
        mark = "" if self.agreement == "agrees" else "DISAGREES: "
        predicted = f"{self.predicted_low_pct:+.1f} to {self.predicted_high_pct:+.1f} %"
        measured = f"{self.measured_low_pct:+.1f} to {self.measured_high_pct:+.1f} %"
        return (
            f"C={self.concurrency}: {mark}{self.agreement}; kernel predicts {predicted}, measured {measured} "
            f"({self.source})"
        )


def predicted_pct(time_ratio: float, share: float) -> float:
    """Change of throughput when a share of every step takes time_ratio of what it took."""
    return 100 * (1 / (1 - share + share * time_ratio) - 1)


def check_amdahl(change: KernelChange, level: Mapping[str, Any]) -> AmdahlCheck:
    """Compares a level of verdict.json with the kernel's own change.

    The prediction takes decode steps for all of a request's time; prefill and transfer only shrink it, so that "less"
    may have an innocent cause and "more" or "opposite sign" may not.
    """
    if level["concurrency"] != change.concurrency:
        raise UsageError(f"kernel measured at C={change.concurrency}, level is C={level['concurrency']}")
    if level["simultaneous_low_pct"] is None:
        raise UsageError(f"C={change.concurrency} has no measured effect; its variant is invalid")
    ends = sorted(predicted_pct(change.time_ratio, share) for share in (change.share_low, change.share_high))
    measured = (float(level["simultaneous_low_pct"]), float(level["simultaneous_high_pct"]))
    agreement = _agreement((ends[0], ends[1]), measured)
    return AmdahlCheck(change.concurrency, ends[0], ends[1], *measured, agreement, change.source)


def _agreement(predicted: tuple[float, float], measured: tuple[float, float]) -> Agreement:
    if measured[0] <= predicted[1] and predicted[0] <= measured[1]:
        return "agrees"
    sign = 1 if sum(predicted) >= 0 else -1
    low, high = sorted(sign * x for x in measured)
    if high < 0:
        return "opposite sign"
    return (
        "more than the kernel explains" if low > max(sign * x for x in predicted) else "less than the kernel predicts"
    )
