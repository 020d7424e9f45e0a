"""Run folders for tests of reports and ledger: virtual cells, rows of the same pace, judged by the real verdict."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.campaign.runs import RunFolder
from app.records import write_json
from loadtest.cells import Cell, write_cells
from loadtest.client.rows import Row, write_load, write_rows
from loadtest.judge.facts import Facts, VariantFacts
from loadtest.judge.verdict import judge
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Lengths, Plan, Start, WindowRules

LEVELS = (1, 2, 4)
EFFECTS = {"v1": (-0.16, -0.02, -0.07), "v2": (-0.012, 0.0, 0.026)}
RECORDS: Mapping[str, Mapping[str, Any]] = {
    "v1": {"hypothesis": "more warps hide the gather latency", "prediction": {"1": [-2, 2], "4": [15, 25]}},
    "v2": {"hypothesis": "deeper prefetch hides latency", "prediction": {"1": [-3, 0], "4": [0, 5]}},
}
CONFIGS = {"pinned": "(16,4,2)", "v1": "(16,8,2)", "v2": "(16,4,3)"}
TTFT_MS = 50.0


def make_plan(levels: Sequence[int] = LEVELS, blocks: int = 4) -> Plan:
    """v1 and v2 against pinned."""
    return Plan(
        seed=7,
        controls={"v1": "pinned", "v2": "pinned"},
        concurrencies=tuple(levels),
        blocks=blocks,
        lengths=Lengths(64, 16),
        window=WindowRules(settle_s=0.5, window_s=3.0),
        time_scale=10.0,
    )


def draw_cells(plan: Plan, effects: Mapping[str, Sequence[float]] = EFFECTS, sd: float = 0.002) -> list[Cell]:
    """Cells of a campaign in virtual time with known true effects (fractions per level)."""
    truth = {v: np.array(e) for v, e in effects.items()}
    return simulate(plan, truth, Noise("quiet", sd, sd), 1, np.random.default_rng(3)).cells(0)


def make_campaign(
    folder: Path,
    plan: Plan,
    cells: Sequence[Cell],
    *,
    records: Mapping[str, Mapping[str, Any]] = RECORDS,
    facts: Mapping[str, VariantFacts] | None = None,
    rows_s: float = 3.0,
) -> Path:
    """Fills a run folder as a campaign would; rows_s: engine seconds of rows at each level."""
    run = RunFolder(folder)
    run.keep_plan(plan)
    run.keep_manifest({"schema": 1, "simulated": True, "stack": {"engine": "sim"}, "variants": dict(records)})
    write_cells(run.cells_file, cells)
    for block in sorted({c.block for c in cells}):
        for start in plan.starts(block):
            _make_start(run.start(start), plan, start, cells, rows_s)
        record = {"block": block, "attempt": 1, "void": [], "finished_at": "2026-11-02T09:00:00+00:00"}
        write_json(run.block(block) / "block.json", record)
    known = Facts(folder.name, True, facts or {}, plan.time_scale)
    write_json(run.verdict_file, judge(plan, cells, known).to_json())
    return folder


def _make_start(folder: Path, plan: Plan, start: Start, cells: Sequence[Cell], rows_s: float) -> None:
    folder.mkdir(parents=True)
    rng, rows, levels, now = random.Random(repr(start)), list[Row](), list[dict[str, Any]](), 5_000_000_000
    for level in start.concurrencies:
        cell = next(c for c in cells if (c.block, c.start, c.concurrency) == (start.block, start.index, level))
        begin, end = now + _wall_ns(plan, rows_s / 4), now + _wall_ns(plan, rows_s * 5 / 4)
        rows += _rows(plan, cell, now, end, rng)
        mark: dict[str, Any] = {"concurrency": level, "entered_ns": now, "filled_ns": now, "reasons": []}
        mark |= {"window_start_ns": begin, "window_end_ns": end}
        levels.append(mark | {"guards": {"loop_lag_p99_ms": 0.4 + rng.random()}})
        now = end + _wall_ns(plan, rows_s / 8)
    write_rows(folder, rows)
    load = {"levels": levels, "guards": {"late_reads": 0}, "simulated": True, "time_scale": plan.time_scale}
    write_load(folder, load | {"server": {"flushes": [], "samples": []}})
    facts = {"selector": "triton", "kernel_sha256": "ab" * 32, "config": CONFIGS[start.variant], "simulated": True}
    write_json(folder / "proof.json", {"variant": start.variant, **facts, "conditions": {}})
    write_json(folder / "conditions.json", {"host": "lab-1", "cpu": "a processor", "cpus": "2"})


def _wall_ns(plan: Plan, engine_s: float) -> int:
    return round(engine_s * 1e9 / plan.time_scale)


def _rows(plan: Plan, cell: Cell, now: int, until: int, rng: random.Random) -> list[Row]:
    rows, tokens, step_s = list[Row](), plan.lengths.output_tokens, cell.concurrency / cell.tokens_per_s
    for user in range(cell.concurrency):
        sent, sequence = now + rng.randrange(_wall_ns(plan, step_s * tokens)), 0
        while sent < until:
            steps = (step_s * (1 + rng.expovariate(50) + rng.random() * (rng.random() < 0.01)) for _ in range(tokens))
            stamps = np.cumsum([sent, *(_wall_ns(plan, s) for s in steps)])[1:].tolist()
            rows.append(make_row(user, cell.concurrency, sequence, sent, stamps))
            sent, sequence = stamps[-1] + 1000, sequence + 1
    return sorted(rows, key=lambda r: r.ended_ns)


def make_row(user: int, level: int, sequence: int, sent: int, stamps: list[int]) -> Row:
    """A request that was answered in full, a token an event."""
    n = len(stamps)
    return Row(
        user=user,
        concurrency=level,
        sequence=sequence,
        worker=0,
        prompt_sha256="0" * 64,
        scheduled_ns=sent,
        sent_ns=sent,
        ended_ns=stamps[-1],
        arrivals_ns=stamps,
        event_tokens=[1] * n,
        token_source="events",
        silent_tokens=0,
        glued=0,
        requested_tokens=n,
        usage_tokens=n,
        prompt_tokens=64,
        cached_tokens=0,
        finish_reason="length",
        status=200,
        error_kind="",
        error="",
    )
