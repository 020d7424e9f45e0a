"""What moving the KV from prefill to decode took inside the steady windows, by the servers' own count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.report.campaign_view import CampaignView, StartRecord
from app.report.evidence import Grid
from app.report.wording import number
from loadtest.measure.server import TRANSFER_METRICS

ROLES = ("prefill", "decode")
FAILED = "num_transfer_failed_reqs_total"
MB_PER_GB = 1024
MS_PER_S = 1000
CAPTION = "KV moved from prefill to decode inside the windows; of two figures prefill's is the first"
COLUMNS = ("variant", "C", "requests", "MB", "latency, ms", "GB/s", "bootstrap, ms", "alloc, ms", "failed")


@dataclass(frozen=True, slots=True)
class Grown:
    """By how much a role's metrics grew through a window, in engine ms and MB of 2**20 bytes; empty where not read."""

    variant: str
    concurrency: int
    role: str
    values: Mapping[str, float]


def read_transfers(view: CampaignView) -> tuple[Grown, ...]:
    """The growth through every window, of every start whose servers tell of transfers at all."""
    return tuple(grown for record in view.starts for grown in _through(record))


def transfer_grid(read: Iterable[Grown]) -> Grid:
    """Means over the windows of all starts, by variant and concurrency; no rows where no server told of transfers."""
    found = dict[str, dict[int, list[Grown]]]()
    for one in read:
        found.setdefault(one.variant, {}).setdefault(one.concurrency, []).append(one)
    rows = tuple(
        (variant, str(level), *_figures(grown))
        for variant, by_level in found.items()
        for level, grown in sorted(by_level.items())
    )
    return Grid(CAPTION, COLUMNS, rows, frozenset(COLUMNS[1:]))


def _through(record: StartRecord) -> Iterator[Grown]:
    load = record.load or {}
    samples = [s for s in load.get("server", {}).get("samples", ()) if not s.get("error")]
    if not any(name in s["values"] for s in samples for name in TRANSFER_METRICS):
        return
    for mark in (m for m in load["levels"] if m["window_end_ns"]):
        for role in ROLES:
            mine = [s for s in samples if s["role"] == role]
            values = _growth(mine, mark["window_start_ns"], mark["window_end_ns"])
            yield Grown(record.start.variant, mark["concurrency"], role, values)


def _growth(samples: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> dict[str, float]:
    """From the sample nearest to a window's begin to the one nearest to its end; empty when these are not two."""
    if not samples:
        return {}
    first, last = (min(samples, key=lambda s: abs(s["at_ns"] - edge)) for edge in (begin_ns, end_ns))
    before, after = first["values"], last["values"]
    # SGLang exports a histogram or a count of failures from its first case on: what is not there is still zero.
    grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in (*TRANSFER_METRICS, FAILED)}
    # Counters that fell are those of another process.
    return grown if first is not last and all(value >= 0 for value in grown.values()) else {}


def _figures(found: Iterable[Grown]) -> tuple[str, ...]:
    total = defaultdict[tuple[str, str], float](float)
    for one in found:
        for name, value in one.values.items():
            total[one.role, name] += value

    def mean(role: str, name: str) -> str:
        return number(_ratio(total[role, f"kv_transfer_{name}_sum"], total[role, f"kv_transfer_{name}_count"]))

    gb = total["prefill", "kv_transfer_total_mb_sum"] / MB_PER_GB
    return (
        number(total["prefill", "kv_transfer_latency_ms_count"] or None, 0),
        mean("prefill", "total_mb"),
        mean("prefill", "latency_ms"),
        number(_ratio(gb, total["prefill", "kv_transfer_latency_ms_sum"] / MS_PER_S)),
        *(" / ".join(mean(role, wait) for role in ROLES) for wait in ("bootstrap_ms", "alloc_ms")),
        " / ".join(number(total.get((role, FAILED)), 0) for role in ROLES),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
