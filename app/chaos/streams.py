"""Many streams at once, for long: no request lost on the way, every row there, and a driver that does not grow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import yaml

from app.campaign.load import run_load, write_order
from app.chaos.record import Tried
from app.chaos.stage import ChaosEngine
from app.chaos.trial import leftovers
from app.engine.sim.engine import CALIBRATION
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from app.records import write_text
from app.stack.local import LocalStack
from app.stack.watch import Watch
from loadtest.client.rows import Rows, read_rows
from loadtest.plan import Lengths, Plan, WindowRules

STEP_MS = 200.0
# Below it the machine, not the lab, was too slow for the load that the line names.
LEAST_RATE_SHARE = 0.9
OUTPUT_TOKENS, PROMPT_TOKENS = 128, 16
RESERVED_TOKENS = 1024
SETTLE_S = 5.0
FILL_S = 300.0
SAMPLE_S = 1.0
MB = 1e6


@dataclass(slots=True)
class Memory:
    """The driver's resident memory once a second while it runs, in bytes."""

    at_s: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    running: bool = True

    def watch(self) -> None:
        """Samples until told to stop; a driver that is not there yet, or no more, has no sample."""
        while self.running:
            for process in _drivers():
                self.at_s.append(time.monotonic())
                self.rss.append(process.memory_info().rss)
            time.sleep(SAMPLE_S)

    def slope_mb_per_min(self, begin_s: float, end_s: float) -> float:
        """Least squares over an interval; NaN with fewer than ten samples in it."""
        at, rss = np.array(self.at_s), np.array(self.rss, float)
        inside = (at >= begin_s) & (at <= end_s)
        if inside.sum() < 10:
            return float("nan")
        return float(np.polyfit(at[inside] / 60, rss[inside] / MB, 1)[0])


@dataclass(frozen=True, slots=True)
class Carried:
    """What a load came to. lost: rows that are missing in a slot's sequence."""

    requests: int
    failed: int
    short: int
    lost: int
    tokens: int
    tokens_per_stream_s: float
    slope_mb_per_min: float
    void: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.requests} requests, {self.tokens} tokens", f"{self.tokens_per_stream_s:.2f} tok/s a stream"]
        parts += [f"{self.failed} failed, {self.short} short, {self.lost} missing"]
        if self.slope_mb_per_min == self.slope_mb_per_min:
            parts.append(f"driver {self.slope_mb_per_min:+.2f} MB/min")
        return "; ".join((*parts, *self.void))


def carry(streams: int, seconds: float, folder: Path, output_tokens: int = OUTPUT_TOKENS) -> Carried:
    """The real driver with so many streams through the real router to a simulated engine of 5 tokens a second each."""
    variants = load_variants()
    kernels = place_kernels(variants, ["pinned"], fetch_base(), folder / "kernels")
    plan = Plan(
        1, {"v1": "pinned"}, (streams,), 2, "single", Lengths(PROMPT_TOKENS, output_tokens),
        WindowRules(SETTLE_S, seconds, FILL_S, max_loop_lag_ms=1000.0),
    )  # fmt: skip
    start = next(s for s in plan.starts(0) if s.variant == "pinned")
    memory = Memory()
    sampler = threading.Thread(target=memory.watch)
    with LocalStack(_engine(streams, folder), folder / "logs") as stack:
        endpoints = stack.up(kernels["pinned"], "block-000/start-00-pinned")
        order = write_order(plan, start, endpoints, folder / "start", simulated=True)
        sampler.start()
        try:
            cells = run_load(order, plan, start, Watch(stack, endpoints.router_url))
        finally:
            memory.running = False
            sampler.join()
    rows = read_rows(folder / "start")
    end_s = float(rows.ended_ns.max()) / 1e9
    slope = memory.slope_mb_per_min(end_s - seconds, end_s)
    return _carried(rows, cells[0].tokens_per_s / streams, slope, cells[0].reasons)


def streams_held(kind: str, streams: int, seconds: float, folder: Path, slope_limit: float = float("inf")) -> Tried:
    """A load as a line of the table: survived when it ran at its rate with nothing failed or missing, memory flat."""
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    began = time.monotonic()
    found = carry(streams, seconds, folder)
    flat = not found.slope_mb_per_min > slope_limit
    whole = not found.failed and not found.short and not found.lost and found.requests >= streams
    carried = found.tokens_per_stream_s >= LEAST_RATE_SHARE * 1000 / STEP_MS
    took_s = time.monotonic() - began
    return Tried(
        kind, 1, int(flat and whole and carried), found.lost, leftovers(before, folder), took_s, note=str(found)
    )


def _carried(rows: Rows, rate: float, slope: float, void: tuple[str, ...]) -> Carried:
    kinds = np.array(rows.error_kind, dtype=object)
    cut, good = kinds == "cut", kinds == ""
    short = np.isin(kinds, ("short_output", "tokens_disagree", "finish_reason"))
    missing = sum(int(s.max()) + 1 - len(s) for s in _sequences(rows))
    return Carried(
        requests=int(good.sum()),
        failed=int((~good & ~cut & ~short).sum()),
        short=int(short.sum()),
        lost=missing,
        tokens=int(rows.event_tokens.sum()),
        tokens_per_stream_s=rate,
        slope_mb_per_min=slope,
        void=void,
    )


def _sequences(rows: Rows) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    for slot in np.unique(rows.user):
        yield rows.sequence[rows.user == slot]


def _drivers() -> list[psutil.Process]:
    try:
        return [p for p in psutil.Process().children() if "--decode-ab-order" in p.cmdline()]
    except psutil.Error:
        return []


def _engine(streams: int, folder: Path) -> ChaosEngine:
    data = yaml.safe_load(CALIBRATION.read_text(encoding="utf-8"))
    why = "assumed: 5 tokens a second and stream, whatever the batch"
    data["decode_step"]["rows"] = [{"batch": b, "ms": STEP_MS, "source": why} for b in (1, 2)]
    data["kv"]["capacity_tokens"]["value"] = streams * (PROMPT_TOKENS + OUTPUT_TOKENS + RESERVED_TOKENS)
    write_text(folder / "calibration.yaml", yaml.safe_dump(data))
    room = ("--max-running-requests", str(2 * streams))
    return ChaosEngine(1, 1.0, folder / "calibration.yaml", extra={"prefill": room, "decode": room})
