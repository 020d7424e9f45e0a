"""The comparison as a committed table: error against the truth, and cost."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.bench_client.accuracy import RatePoint, rates_json, rates_table
from app.bench_client.compare import Comparison
from app.bench_client.tools import Load
from app.environment import ROOT

RESULTS = ROOT / "loadtest" / "results"
OWN = (
    "## Our own stamps at rising rates (SIMULATED server)\n\n96 streams that all emit on one tick, mock and client each"
    " on a core of its own; errors against the mock's own stamps. Of three runs the one with the least late mock;"
    " where even that was late by more than a gap, the machine was disturbed and the row says nothing of the client."
)
HEAD = "| client | requests | TTFT mean | TPOT mean | gap p99 | output tok/s | CPU s per 100k tokens | mock late p99 |"


def write_table(
    found: Sequence[Comparison],
    load: Load,
    itl_ms: float,
    folder: Path = RESULTS,
    rates: Sequence[RatePoint] = (),
) -> Path:
    """Writes bench_client.md and bench_client.json; gives the path of the former. rates: our own accuracy."""
    folder.mkdir(parents=True, exist_ok=True)
    conditions = {
        "load": asdict(load),
        "itl_ms": itl_ms,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "machine": platform.machine(),
    }
    data: dict[str, object] = {"simulated": True, "conditions": conditions, "clients": [asdict(c) for c in found]}
    data["rates"] = rates_json(rates)
    (folder / "bench_client.json").write_text(json.dumps(data, indent=1) + "\n")
    path = folder / "bench_client.md"
    text = table(found, load, itl_ms, conditions["load_average"])
    path.write_text(f"{text}\n\n{OWN}\n\n{rates_table(rates)}\n" if rates else f"{text}\n")
    return path


def table(found: Sequence[Comparison], load: Load, itl_ms: float, load_average: object) -> str:
    """The table in Markdown."""
    lines = [
        "# Load clients beside each other on one clocked mock (SIMULATED server)",
        "",
        f"{load.streams} streams, {load.requests} requests of {load.prompt_tokens} prompt and {load.output_tokens} "
        f"output tokens, one token every {itl_ms:g} ms, first after 50 ms; mock and client on a core each of "
        f"{os.cpu_count()}, load average {load_average} at the end. Errors are against the mock's own record of the "
        "same requests; ours may send more of them, since its closed loop is measured by time. CPU is of the whole "
        "process tree, less a run of two requests. Of three runs the one with the least late mock. Made by "
        "`invoke bench-client`.",
        "",
        HEAD,
        "|" + "---|" * 8,
        *(_line(c) for c in found),
    ]
    return "\n".join(lines)


def _line(c: Comparison) -> str:
    if c.reported is None or c.truth is None:
        return f"| {c.client} | left out: {c.error} | | | | | | |"
    cells = [
        _excess(c.reported.ttft_ms, c.truth.ttft_ms),
        _relative(c.reported.tpot_ms, c.truth.tpot_ms),
        _relative(c.reported.gap_p99_ms, c.truth.gap_p99_ms),
        _relative(c.reported.tokens_per_s, c.truth.tokens_per_s),
        "–" if c.cpu_s_per_100k is None else f"{c.cpu_s_per_100k:.1f}",
        "–" if c.mock_late_p99_ms is None else f"{c.mock_late_p99_ms:.1f} ms",
    ]
    return f"| {c.client} | {c.requests} | {' | '.join(cells)} |"


def _relative(value: float | None, truth: float | None) -> str:
    return "not reported" if value is None or not truth else f"{100 * (value / truth - 1):+.2f} %"


def _excess(value: float | None, truth: float | None) -> str:
    return "not reported" if value is None or truth is None else f"{value - truth:+.2f} ms"
