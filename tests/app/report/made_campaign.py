"""Makes run folders for report tests: rows with known pace, judged by the real verdict."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.records import write_json
from app.runs import RunFolder
from loadtest.cells import Cell, write_cells
from loadtest.plan import Lengths, Plan, Start, WindowRules
from loadtest.rows import Row, write_load, write_rows
from loadtest.verdict import Facts, VariantFacts, judge

STEP_MS = {1: 9.0, 2: 9.6, 4: 10.6, 8: 16.0, 48: 62.0, 64: 79.0, 80: 96.0, 96: 113.6}
EFFECT: Mapping[str, Mapping[int, float]] = {
    "v1": {1: -0.16, 2: -0.15, 4: -0.15, 8: -0.15, 48: -0.065, 64: -0.055, 80: -0.06, 96: -0.07},
    "v2": {1: -0.012, 2: -0.011, 4: -0.01, 8: 0.0, 48: 0.014, 64: 0.021, 80: 0.024, 96: 0.026},
}
RECORDS: Mapping[str, Mapping[str, Any]] = {
    "pinned": {"control": None, "hypothesis": "", "prediction": {}, "change": "one config (16,4,2)"},
    "v1": {
        "control": "pinned",
        "hypothesis": "more warps hide the gather latency",
        "prediction": {"1": [-2, 2], "96": [15, 25]},
        "change": "configs (16,8,2)",
    },
    "v2": {
        "control": "pinned",
        "hypothesis": "deeper prefetch hides latency and keeps the 4-warp MMA",
        "prediction": {"1": [-3, 0], "96": [0, 5]},
        "change": "configs (16,4,3)",
    },
}


def make_plan(levels: Sequence[int] = (1, 2, 4), blocks: int = 4, variants: Sequence[str] = ("v1", "v2")) -> Plan:
    """A plan whose windows are a few engine seconds long."""
    return Plan(
        seed=7,
        controls=dict.fromkeys(variants, "pinned"),
        concurrencies=tuple(levels),
        blocks=blocks,
        lengths=Lengths(64, 16),
        window=WindowRules(settle_s=0.5, window_s=3.0),
        time_scale=10.0,
    )


def make_campaign(folder: Path, plan: Plan, *, sd: float = 0.004, window_s: float = 3.0, **facts: Any) -> Path:
    """Fills a run folder as a campaign would and returns it; facts go to the verdict's Facts."""
    run = RunFolder(folder)
    run.keep_plan(plan)
    run.keep_manifest({"schema": 1, "simulated": True, "stack": {"engine": "sim"}, "variants": dict(RECORDS)})
    cells = [c for b in range(plan.blocks) for s in plan.starts(b) for c in _make_start(run, plan, s, sd, window_s)]
    write_cells(run.cells_file, cells)
    for block in range(plan.blocks):
        write_json(
            run.block(block) / "block.json",
            {"schema": 1, "block": block, "attempt": 1, "void": [], "finished_at": "2026-11-02T09:00:00+00:00"},
        )
    write_json(
        run.verdict_file, judge(plan, cells, Facts(folder.name, True, time_scale=plan.time_scale, **facts)).to_json()
    )
    return folder


def _make_start(run: RunFolder, plan: Plan, start: Start, sd: float, window_s: float) -> list[Cell]:
    folder, rng = run.start(start), random.Random(f"{start}")
    folder.mkdir(parents=True)
    life = rng.gauss(0, sd)
    rows, levels, cells, now = list[Row](), list[dict[str, Any]](), list[Cell](), 5_000_000_000
    for level in start.concurrencies:
        step_ms = STEP_MS[level] / (1 + EFFECT.get(start.variant, {}).get(level, 0)) * (1 + life + rng.gauss(0, sd / 2))
        wall_ns = round(window_s * 1e9 / plan.time_scale)
        begin = now + wall_ns // 4
        made = _rows(plan, level, step_ms, now, begin + wall_ns, rng)
        levels.append(
            {
                "concurrency": level,
                "filled_ns": now,
                "window_start_ns": begin,
                "window_end_ns": begin + wall_ns,
                "reasons": [],
                "guards": {"loop_lag_p99_ms": 0.4 + rng.random()},
            }
        )
        cells.append(_cell(start, level, made, begin, begin + wall_ns, plan.time_scale, step_ms))
        rows += made
        now = begin + wall_ns + wall_ns // 8
    write_rows(folder, rows)
    write_load(
        folder,
        {
            "levels": levels,
            "guards": {"cpu_s": 1.5, "late_reads": 0},
            "server": {},
            "simulated": True,
            "time_scale": plan.time_scale,
        },
    )
    proof = {
        "variant": start.variant,
        "selector": "triton",
        "kernel_sha256": "ab" * 32,
        "config": {"v1": "(16,8,2)", "v2": "(16,4,3)"}.get(start.variant, "(16,4,2)"),
        "simulated": True,
        "conditions": {},
    }
    write_json(folder / "proof.json", proof)
    write_json(folder / "conditions.json", {"host": "lab-1", "cpu": "a processor", "cpus": "2"})
    return cells


def _rows(plan: Plan, level: int, step_ms: float, now: int, until: int, rng: random.Random) -> list[Row]:
    rows, tokens = list[Row](), plan.lengths.output_tokens
    for user in range(level):
        at, sequence = now + rng.randrange(round(step_ms * 1e6 * tokens / plan.time_scale)), 0
        while at < until:
            pace = [
                step_ms * (1 + abs(rng.gauss(0, 0.02)) + (rng.random() < 0.01) * rng.random()) for _ in range(tokens)
            ]
            stamps, stamp = list[int](), at + round(20e6 / plan.time_scale)
            for ms in pace:
                stamp += round(ms * 1e6 / plan.time_scale)
                stamps.append(stamp)
            rows.append(_row(user, level, sequence, at, stamps))
            at, sequence = stamp + 1000, sequence + 1
    return sorted(rows, key=lambda r: r.ended_ns)


def _row(user: int, level: int, sequence: int, sent: int, stamps: list[int]) -> Row:
    n = len(stamps)
    return Row(
        user,
        level,
        sequence,
        0,
        "0" * 64,
        sent,
        sent,
        stamps[-1],
        stamps,
        [1] * n,
        "events",
        0,
        0,
        n,
        n,
        64,
        0,
        "length",
        200,
        "",
        "",
    )


def _cell(start: Start, level: int, rows: list[Row], begin: int, end: int, scale: float, step_ms: float) -> Cell:
    # The rate is the pace itself, not the count: a short window would add a token's rounding to every difference.
    tokens = sum(begin <= t <= end for r in rows for t in r.arrivals_ns)
    ttft = 20 + step_ms
    window_s = (end - begin) / 1e9 * scale
    e2e = ttft + step_ms * 15
    return Cell(
        start.block,
        start.index,
        start.variant,
        level,
        1000 * level / step_ms,
        window_s,
        tokens,
        len(rows),
        ttft,
        ttft * 1.3,
        step_ms,
        step_ms,
        step_ms * 1.1,
        e2e,
        float(level),
        0,
        0,
    )


def facts_of(**facts: VariantFacts) -> dict[str, VariantFacts]:
    """Facts by variant."""
    return facts
