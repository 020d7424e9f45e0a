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
    """The table's worst error rates for one design and number of blocks, over all one-mode noise.

    false_verdicts: largest family-wise share of campaigns without a difference in which one was claimed.
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
        rows = [r for r in self.rows if r["design"] == design and int(r["blocks"]) == blocks and r["unimodal"] == "yes"]
        same = [r for r in rows if r["truth"] == "none"]
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


def read_table(path: Path = TABLE) -> Table:
    """Reads the committed table; RecordsError when it is missing."""
    if not path.is_file():
        raise RecordsError(f"{path} is missing; `invoke calibrate-verdict` writes it")
    data = path.read_bytes()
    return Table(hashlib.sha256(data).hexdigest(), tuple(csv.DictReader(data.decode().splitlines())))
