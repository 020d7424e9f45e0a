"""How fast the lab's own tools are, beside what is asked of them: `python -m tests.acceptance.speeds OUT.csv`.

Wall seconds, median of the tries, on the machine named in every row. The comparison is SIMULATED; its overhead is not.
"""

from __future__ import annotations

import csv
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

from app.campaign.compare import begin
from app.campaign.runs import RUNS
from app.campaign.runtimes import Setup
from app.console.demo import demo_plan
from app.ledger.campaigns import LEDGER, record_campaign
from app.progress import Progress
from app.report import write_reports
from kernels.toolchain import cache_folder
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan
from tests.app.report.test_large_campaign import swell

INVOKE = [sys.executable, "-m", "invoke"]
FIELDS = ("what", "found", "asked", "unit", "tries", "machine")


class Speed(NamedTuple):
    """One tool's figure and its limit."""

    what: str
    found: float
    asked: float
    unit: str
    tries: int


class Stopwatch(Progress):
    """Progress that adds up the seconds between a start's beginning and its end."""

    def __init__(self, starts: int) -> None:
        super().__init__(starts, quiet=True)
        self.measured_s, self._since = 0.0, 0.0

    def step(self, text: str, *, done: float | None = None, eta_s: float | None = None) -> None:
        """Notes when a start begins and when it is measured."""
        if text.endswith("starting"):
            self._since = time.monotonic()
        elif text.endswith("measured"):
            self.measured_s += time.monotonic() - self._since
        super().step(text, done=done, eta_s=eta_s)

    def __enter__(self) -> Self:
        return super().__enter__()


def timed(work: Callable[[], object], tries: int) -> float:
    """Median wall seconds."""
    seconds = []
    for _ in range(tries):
        began = time.monotonic()
        work()
        seconds.append(time.monotonic() - began)
    return median(seconds)


def run(*arguments: str, cache: Path | None = None) -> None:
    """One task of the lab in a process of its own."""
    given = os.environ | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    subprocess.run([*INVOKE, *arguments], check=True, capture_output=True, env=given)


def cold_gate() -> None:
    """The gate with everything fetched and nothing compiled."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "decode-ab"
        cache.mkdir()
        for kept in cache_folder().iterdir():
            if kept.name != "gate":
                (cache / kept.name).symlink_to(kept)
        run("check", "--variant", "v2", cache=Path(folder))


def report_of_a_million() -> tuple[float, float]:
    """Wall seconds of a report on a million requests, and the megabytes it took at most."""
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan()
        campaign = make_campaign(Path(folder) / "large", plan, draw_cells(plan))
        swell(campaign, plan)
        code = f"from pathlib import Path; from app.report import write_reports; write_reports(Path({str(campaign)!r}))"
        seconds = timed(lambda: subprocess.run([sys.executable, "-c", code], check=True), 1)
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def overhead_of_a_comparison() -> float:
    """Percent of a demo's time that is not spent between a start's beginning and its end."""
    plan = demo_plan(seed=1)
    began = time.monotonic()
    with Stopwatch(plan.blocks * len(plan.starts(0))) as watch:
        outcome = begin(plan, Setup(), None, watch)
    record_campaign(outcome.folder.path, RUNS / LEDGER)
    write_reports(outcome.folder.path)
    return 100 * (1 - watch.measured_s / (time.monotonic() - began))


def speeds() -> Iterator[Speed]:
    """Every figure, the quick ones first."""
    yield Speed("invoke --list", timed(lambda: run("--list"), 9), 0.3, "s", 9)
    run("check", "--variant", "v2")
    yield Speed("gate of one variant, warm cache", timed(lambda: run("check", "--variant", "v2"), 5), 1.0, "s", 5)
    yield Speed("gate of one variant and its control, cold", timed(cold_gate, 3), 10.0, "s", 3)
    seconds, megabytes = report_of_a_million()
    yield Speed("report on 1,000,000 requests", seconds, 10.0, "s", 1)
    yield Speed("report on 1,000,000 requests, memory", megabytes, 1024.0, "MB", 1)
    yield Speed("demo beyond its measured starts", overhead_of_a_comparison(), 5.0, "%", 1)


def main(out: Path) -> None:
    """Writes the table and prints it."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for speed in speeds():
            writer.writerow((speed.what, f"{speed.found:.2f}", f"{speed.asked:g}", speed.unit, speed.tries, machine))
            file.flush()
            print(f"{speed.what}: {speed.found:.2f} {speed.unit} ({speed.asked:g} asked)", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
