"""What was predicted of a variant before it ran, set against what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.report.judged import Judged, Level, Range

# What an interval says while there is no verdict.
SO_FAR = {"held": "for it so far", "refuted": "against it so far"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted range of the effect in percent at one concurrency, and what became of it.

    outcome: held (the whole interval lies inside the range), refuted (it lies outside), open (it straddles an end),
    not judged (there is no interval). Before there are blocks enough for a verdict: for it, or against it, so far.
    """

    concurrency: int
    predicted: Range
    found: Range | None
    outcome: str


def predictions(record: Mapping[str, Any], judged: Judged | None) -> tuple[Prediction, ...]:
    """A variant's recorded predictions in rising concurrency; those of levels that were not measured are left out."""
    ranges = {int(c): (float(r[0]), float(r[1])) for c, r in record.get("prediction", {}).items()}
    levels = {level.concurrency: level for level in judged.levels} if judged else {}
    waiting = judged is not None and judged.waiting
    return tuple(_checked(c, ranges[c], levels[c], waiting) for c in sorted(ranges.keys() & levels.keys()))


def _checked(concurrency: int, predicted: Range, level: Level, waiting: bool) -> Prediction:
    outcome = _outcome(predicted, level.simultaneous)
    said = SO_FAR.get(outcome, outcome) if waiting else outcome
    return Prediction(concurrency, predicted, level.simultaneous, said)


def _outcome(predicted: Range, found: Range | None) -> str:
    if found is None:
        return "not judged"
    if found[1] < predicted[0] or found[0] > predicted[1]:
        return "refuted"
    return "held" if predicted[0] <= found[0] and found[1] <= predicted[1] else "open"
