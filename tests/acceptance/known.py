"""Campaigns whose truth is known, through real processes, router and clock: `python -m tests.acceptance.known OUT`.

SIMULATED. One compares a kernel with itself (aa against pinned), one finds a slowdown of 2 % that a changed calibration
puts under v2. What a reader needs to judge them again is kept: plan, manifest, cells, verdict and report.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from app.campaign.compare import begin, write_plan
from app.campaign.runtimes import Setup
from app.engine.sim.engine import CALIBRATION
from app.progress import Progress
from app.report import write_reports
from loadtest.plan import Lengths, Plan, WindowRules

SLOWDOWN_PCT = -2.0
BLOCKS = 8
CONCURRENCIES = (1, 8, 96)
KEPT = ("plan.json", "manifest.json", "cells.csv", "levels.csv", "verdict.json", "report.md")


def known_plan(variant: str, seed: int) -> Plan:
    """A variant against its control in mirrored blocks, at the demo's pace with longer windows."""
    return write_plan(
        (variant,),
        CONCURRENCIES,
        blocks=BLOCKS,
        seed=seed,
        lengths=Lengths(prompt_tokens=64, output_tokens=96),
        window=WindowRules(settle_s=4, window_s=30, fill_timeout_s=200),
        time_scale=10,
    )


def slowed(path: Path) -> Path:
    """The shipped calibration with the slowdown under (16,4,3) at every batch, written to `path`."""
    text = CALIBRATION.read_text()
    section = re.search(r'  "\(16,4,3\)":\n(?:    - .*\n)+', text)
    if section is None:
        raise ValueError(f"{CALIBRATION} has no rows for (16,4,3)")
    row = f'    - {{batch: 1, percent: {SLOWDOWN_PCT}, source: "assumed: a known slowdown for the lab to find"}}\n'
    path.write_text(text.replace(section.group(), f'  "(16,4,3)":\n{row}'))
    return path


def run_known(out: Path, name: str, variant: str, calibration: Path | None, seed: int) -> str:
    """Runs one campaign and keeps its records in out/name; gives the verdict in a line."""
    plan = known_plan(variant, seed)
    with Progress(plan.blocks * len(plan.starts(0)), quiet=True) as progress:
        outcome = begin(plan, Setup(calibration=str(calibration) if calibration else None), None, progress)
    write_reports(outcome.folder.path)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    for kept in KEPT:
        shutil.copy(outcome.folder.path / kept, folder / kept)
    found = outcome.verdict.variants[0]
    levels = ", ".join(f"C={x.concurrency} {x.outcome} ({x.low_pct:+.2f} to {x.high_pct:+.2f} %)" for x in found.levels)
    return f"SIMULATED {name}: {found.decision}; {levels}"


def main(out: Path) -> None:
    """Runs both campaigns and prints what each found."""
    (out / "slower_2pct").mkdir(parents=True, exist_ok=True)
    print(run_known(out, "same_code", "aa", None, seed=1), flush=True)
    print(run_known(out, "slower_2pct", "v2", slowed(out / "slower_2pct" / "calibration.yaml"), seed=2), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
