"""The committed table of the verdict's own error rates, and the rows of it that a verdict cites."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path

from app.errors import RecordsError

TABLE = Path(__file__).parents[1] / "results" / "verdict_calibration.csv"
NAME = "loadtest/results/verdict_calibration.csv"


@dataclass(frozen=True, slots=True)
class Cited:
    """The table's worst error rates for one design and number of blocks, over all one-mode noise without a difference.

    false_verdicts: largest family-wise share of campaigns in which one was claimed.
    coverage_low and coverage_high: extremes of the pointwise intervals' coverage; simultaneous_low: the least of the
    simultaneous intervals' coverage.
    """

    design: str
    blocks: int
    campaigns: int
    false_verdicts: float
    coverage_low: float
    coverage_high: float
    simultaneous_low: float


@dataclass(frozen=True, slots=True)
class Table:
    """The calibration table as read; sha256 is that of the file."""

    sha256: str
    rows: tuple[dict[str, str], ...]

    def cite(self, design: str, blocks: int) -> Cited | None:
        """What is known of this design and number of blocks; None where it was not calibrated."""
        same = [r for r in self._one_mode(design, blocks) if r["truth"] == "none"]
        if not same:
            return None
        return Cited(
            design,
            blocks,
            min(int(r["campaigns"]) for r in same),
            max(float(r["false_verdicts"]) for r in same),
            min(float(r["coverage"]) for r in same),
            max(float(r["coverage"]) for r in same),
            min(float(r["simultaneous_coverage"]) for r in same),
        )

    def held_under_difference(self, design: str, blocks: int) -> float:
        """The least share of campaigns with a difference whose simultaneous intervals held it, at calibrated sizes."""
        rows = self._one_mode(design, blocks)
        return min(float(r["simultaneous_coverage"]) for r in rows if r["truth"] != "none")

    def _one_mode(self, design: str, blocks: int) -> list[dict[str, str]]:
        wanted = (design, str(blocks), "yes")
        return [r for r in self.rows if (r["design"], r["blocks"], r["unimodal"]) == wanted]


def read_table(path: Path = TABLE) -> Table:
    """Reads the committed table; RecordsError when it is missing."""
    if not path.is_file():
        raise RecordsError(f"{path} is missing; `invoke calibrate-verdict` writes it")
    data = path.read_bytes()
    return Table(hashlib.sha256(data).hexdigest(), tuple(csv.DictReader(data.decode().splitlines())))
