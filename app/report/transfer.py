"""What moving the KV from prefill to decode took inside the windows, before MSER cuts any, by the servers' own count.

Of a server with several ranks each counts its own part of a request (SGLang 0.5.17 labels them tp_rank, dp_rank), so
that a request of four ranks is four observations: sums are over them all, means are of one, and the table says of how
many ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.report.campaign_view import CampaignView, StartRecord
from app.report.evidence import Grid
from app.report.wording import UNKNOWN, number
from loadtest.measure.server import TRANSFER_METRICS, TRANSFER_RANKS

ROLES = ("prefill", "decode")
FAILED = "num_transfer_failed_reqs_total"
MIB_PER_GIB = 1024
MS_PER_S = 1000
CAPTION = "KV moved from prefill to decode inside the windows, before any is cut; of two figures prefill's is the first"
COLUMNS = ("variant", "C", "ranks", "transfers", "MiB", "latency, ms", "GiB/s", "bootstrap, ms", "alloc, ms", "failed")


@dataclass(frozen=True, slots=True)
class Grown:
    """By how much a role's metrics grew through a window, in engine ms and MiB (SGLang's MB); empty where not read.

    ranks: how many had told of a transfer by the window's end, whose counts are summed; 0 where that is not known.
    """

    variant: str
    concurrency: int
    role: str
    values: Mapping[str, float]
    ranks: int = 0


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
            values, ranks = _growth(mine, mark["window_start_ns"], mark["window_end_ns"])
            yield Grown(record.start.variant, mark["concurrency"], role, values, ranks)


def _growth(samples: Sequence[Mapping[str, Any]], begin_ns: int, end_ns: int) -> tuple[dict[str, float], int]:
    """From the sample nearest to a window's begin to the one nearest to its end, and the latter's ranks.

    Empty when these are not two.
    """
    if not samples:
        return {}, 0
    first, last = (min(samples, key=lambda s: abs(s["at_ns"] - edge)) for edge in (begin_ns, end_ns))
    before, after = first["values"], last["values"]
    # SGLang exports a histogram or a count of failures from its first case on: what is not there is still zero.
    grown = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in (*TRANSFER_METRICS, FAILED)}
    # Counters that fell are those of another process.
    if first is last or any(value < 0 for value in grown.values()):
        return {}, 0
    return grown, int(after.get(TRANSFER_RANKS, 0))


def _figures(found: Sequence[Grown]) -> tuple[str, ...]:
    total = defaultdict[tuple[str, str], float](float)
    for one in found:
        for name, value in one.values.items():
            total[one.role, name] += value

    def mean(role: str, name: str) -> str:
        return number(_ratio(total[role, f"kv_transfer_{name}_sum"], total[role, f"kv_transfer_{name}_count"]))

    gib = total["prefill", "kv_transfer_total_mb_sum"] / MIB_PER_GIB
    return (
        " / ".join(_ranks(one.ranks for one in found if one.role == role) for role in ROLES),
        number(total["prefill", "kv_transfer_latency_ms_count"] or None, 0),
        mean("prefill", "total_mb"),
        mean("prefill", "latency_ms"),
        number(_ratio(gib, total["prefill", "kv_transfer_latency_ms_sum"] / MS_PER_S)),
        *(" / ".join(mean(role, wait) for role in ROLES) for wait in ("bootstrap_ms", "alloc_ms")),
        " / ".join(number(total.get((role, FAILED)), 0) for role in ROLES),
    )


def _ranks(told: Iterable[int]) -> str:
    # More than one figure where some rank told of its first transfer after a window.
    return ", ".join(map(str, sorted(set(told) - {0}))) or UNKNOWN


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
