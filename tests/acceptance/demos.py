"""What many demos found of v1 beside the truth that lay beneath: `python -m tests.acceptance.demos OUT.csv RUN...`.

SIMULATED. The truth is the calibration's, through the same scheduler without noise; the verdict never sees it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.campaign.compare import judge_again
from app.campaign.runs import RunFolder
from app.console.demo import CONCURRENCIES
from app.engine.sim.calibration import read_calibration
from app.engine.sim.engine import CALIBRATION
from app.engine.sim.virtual import truth

VARIANT, CHANGED, CONTROL = "v1", "(16,8,2)", "(16,4,2)"
FIELDS = (
    "demo",
    "seed",
    "concurrency",
    "outcome",
    "effect_pct",
    "low_pct",
    "high_pct",
    "truth_pct",
    "holds",
    "simulated",
)


def rows(folders: list[Path]) -> Iterator[dict[str, Any]]:
    """One row a demo and concurrency; holds says whether the pointwise 95 % interval contains the truth."""
    calibration = read_calibration(CALIBRATION)
    for number, folder in enumerate(folders, start=1):
        plan = RunFolder(folder).plan()
        lengths = plan.lengths
        found = next(v for v in judge_again(RunFolder(folder)).variants if v.variant == VARIANT)
        for level in found.levels:
            sizes = (lengths.prompt_tokens, lengths.output_tokens)
            percent = 100 * truth(calibration, CHANGED, CONTROL, level.concurrency, *sizes)
            low, high = level.low_pct, level.high_pct
            yield {
                "demo": number,
                "seed": plan.seed,
                "concurrency": level.concurrency,
                "outcome": level.outcome,
                "effect_pct": level.effect_pct and round(level.effect_pct, 3),
                "low_pct": low and round(low, 3),
                "high_pct": high and round(high, 3),
                "truth_pct": round(percent, 3),
                "holds": low is not None and high is not None and low <= percent <= high,
                "simulated": True,
            }


def main(out: Path, folders: list[Path]) -> None:
    """Writes the table and prints what it shows."""
    table = list(rows(folders))
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(table)
    for concurrency in CONCURRENCIES:
        here = [r for r in table if r["concurrency"] == concurrency]
        worse, holds = sum(r["outcome"] == "worse" for r in here), sum(r["holds"] for r in here)
        print(f"SIMULATED C={concurrency}: v1 worse in {worse} of {len(here)}, truth inside {holds} of {len(here)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sorted(Path(a) for a in sys.argv[2:]))
