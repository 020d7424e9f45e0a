"""Runs the load of one start: a headless Locust process that follows an order file and leaves raw rows behind."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from app.engine import Command, Endpoints
from app.environment import ROOT
from app.errors import LoadError, NotReadyError, UnwrittenError
from app.records import read_json, write_json
from app.stack.process import FAULT, LAST_LINES, Service, wait_until
from app.stack.watch import Watch
from loadtest.cells import Cell, write_cells
from loadtest.client.rows import read_rows
from loadtest.measure.window import measure
from loadtest.order import LOCUSTFILE, StartOrder
from loadtest.plan import Plan, Start

# Beyond what the levels take by plan: Locust's own start and end, and writing the rows.
SPARE_S = 60.0
# What a driver whose servers failed gets to end by itself; its rows do not count any more.
GRACE_S = 2.0
LEAST_BYTES = 1 << 16
# What Locust logs as a fault, and rows of the two tables of requests that it ends with.
LOGGED = re.compile(r"\[[^]]*\] \S+/(?:ERROR|CRITICAL)/")
TABLED = re.compile(r"Type +Name |(?:stream)? +Aggregated |stream +.*\d+$|Response time percentiles")


def write_order(plan: Plan, start: Start, endpoints: Endpoints, folder: Path, simulated: bool) -> Path:
    """Writes order.json, all that the load driver may know of a start."""
    order = StartOrder(
        block=start.block,
        start=start.index,
        variant=start.variant,
        control=plan.controls.get(start.variant, ""),
        concurrencies=start.concurrencies,
        lengths=plan.lengths,
        window=plan.window,
        prompt_seed=plan.prompt_seed(start.block),
        model=endpoints.model,
        time_scale=plan.time_scale,
        router_url=endpoints.router_url,
        prefill_url=endpoints.prefill_url,
        decode_url=endpoints.decode_url,
        router_metrics_url=endpoints.router_metrics_url,
        out=Path(),
        simulated=simulated,
    )
    path = folder / "order.json"
    write_json(path, order.to_json())
    return path


def run_load(
    order: Path, plan: Plan, start: Start, watch: Watch, python: Sequence[str] = (sys.executable, "-m")
) -> list[Cell]:
    """Measures one start and keeps its cells beside its rows. python: the command that runs a module.

    NotReadyError as soon as the watch sees a service fail; LoadError when the driver itself fails or overruns.
    """
    folder = order.parent
    _run_locust(order, watch, python, longest_s(plan, len(start.concurrencies)))
    cells = measure(start, read_rows(folder), read_json(folder / "load.json"), plan)
    write_cells(folder / "cells.csv", cells)
    return cells


def longest_s(plan: Plan, levels: int) -> float:
    """Wall seconds after which a load that has not ended is ended."""
    rules = plan.window
    return SPARE_S + levels * (rules.fill_timeout_s + rules.settle_s + rules.window_s) / plan.time_scale


def _run_locust(order: Path, watch: Watch, python: Sequence[str], timeout_s: float) -> None:
    argv = [*python, "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    argv += ["--host", watch.router_url, "--decode-ab-order", str(order)]
    driver = Service("load driver", Command(tuple(argv), {"PYTHONPATH": str(ROOT)}), order.with_name("locust.log"))
    driver.start()
    try:
        _await_end(driver, watch, timeout_s)
    finally:
        driver.stop(GRACE_S)


def _await_end(driver: Service, watch: Watch, timeout_s: float) -> None:
    fault = ""

    def ended() -> bool:
        nonlocal fault
        fault = watch()
        return bool(fault) or not driver.running

    if not wait_until(ended, timeout_s):
        raise LoadError(f"the load driver did not end within {timeout_s:.0f} s (log: {driver.log})")
    # A driver that fails on a service's death may do so before the watch looks again.
    if fault := fault or (watch.ended() if driver.exit_code else ""):
        raise NotReadyError(fault)
    if driver.exit_code != 0:
        _require_space(driver.log.parent)
        said = last_words(driver.tail(LAST_LINES))
        raise LoadError(f"the load driver ended with exit code {driver.exit_code}: {said} (log: {driver.log})")


def last_words(lines: Sequence[str]) -> str:
    """Of the end of a driver's log: its last exception or error, or the last line that is none of Locust's tables."""
    faults = [line for line in lines if FAULT.match(line) or LOGGED.match(line)]
    words = [line for line in lines if re.search(r"\w", line) and not TABLED.match(line)]
    return next(reversed(faults or words), "no output")


def _require_space(folder: Path) -> None:
    # What failed for want of space would fail in every further attempt, and its log cannot say so.
    if shutil.disk_usage(folder).free < LEAST_BYTES:
        raise UnwrittenError(f"{folder} could not be written: no space left on its disk; free some space")
