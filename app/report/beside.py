"""What servers and GPUs showed beside the load: their readings over each start, and inside the steady windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from app.report.campaign_view import CampaignView, StartRecord
from app.report.evidence import Grid
from app.report.streams import Window
from app.report.wording import number

Points = tuple[tuple[float, float], ...]
RUNNING = "decode, running requests"
SM_CLOCK = "SM clock, MHz"
SERVER = {
    "num_running_reqs": "running requests",
    "num_queue_reqs": "waiting requests",
    "token_usage": "share of the KV cache in use",
    "num_decode_transfer_queue_reqs": "requests whose KV is under way",
    "smg_http_connections_active": "open connections",
}
CARD = {"sm_mhz": SM_CLOCK, "power_w": "power, W", "temperature_c": "temperature, °C"}


@dataclass(frozen=True, slots=True)
class Beside:
    """Readings of one start: points of each series as (engine s since the first reading, value), and the windows."""

    block: int
    start: int
    variant: str
    span_s: float
    windows: tuple[Window, ...]
    series: Mapping[str, Points]


def read_beside(view: CampaignView) -> tuple[Beside, ...]:
    """The readings of every start that kept any."""
    return tuple(b for b in (_beside(r, view.plan.time_scale) for r in view.starts) if b is not None)


def readings_grid(read: Iterable[Beside]) -> Grid:
    """Mean, least and most of each series over the windows of all starts, by concurrency and variant."""
    found = dict[tuple[str, int], dict[str, list[float]]]()
    variants = dict[str, None]()
    for one in read:
        variants.setdefault(one.variant)
        for name, level, value in _inside(one):
            found.setdefault((name, level), {}).setdefault(one.variant, []).append(value)
    rows = tuple(
        (name, str(level), *(_spread(by_variant.get(v, [])) for v in variants))
        for (name, level), by_variant in sorted(found.items())
    )
    caption = "Readings of servers and cards inside the windows: mean (least to most)"
    return Grid(caption, ("reading", "C", *variants), rows, frozenset(("C", *variants)))


def _beside(record: StartRecord, time_scale: float) -> Beside | None:
    load = record.load or {}
    series = dict(_series(load))
    if not series:
        return None
    levels = [m for m in load["levels"] if m["window_end_ns"]]
    stamps = [at for points in series.values() for at, _ in points]
    first = min([*stamps, *(m["window_start_ns"] for m in levels)])
    last = max([*stamps, *(m["window_end_ns"] for m in levels)])

    def engine_s(at_ns: float) -> float:
        return float((at_ns - first) / 1e9 * time_scale)

    windows = (Window(m["concurrency"], engine_s(m["window_start_ns"]), engine_s(m["window_end_ns"])) for m in levels)
    points = {name: tuple((engine_s(at), value) for at, value in found) for name, found in series.items()}
    start = record.start
    return Beside(start.block, start.index, start.variant, engine_s(last), tuple(windows), points)


def _series(load: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    samples = [s for s in load.get("server", {}).get("samples", ()) if not s.get("error")]
    for role in sorted({s["role"] for s in samples}):
        for key, words in SERVER.items():
            points = [(s["at_ns"], s["values"][key]) for s in samples if s["role"] == role and key in s["values"]]
            if points:
                yield f"{role}, {words}", points
    cards = load.get("gpu", ())
    for index in sorted({s["index"] for s in cards}):
        for key, words in CARD.items():
            yield f"GPU {index}, {words}", [(s["at_ns"], s[key]) for s in cards if s["index"] == index]


def _inside(one: Beside) -> Iterator[tuple[str, int, float]]:
    for window in one.windows:
        for name, points in one.series.items():
            for at, value in points:
                if window.begin_s <= at <= window.end_s and math.isfinite(value):
                    yield name, window.concurrency, value


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    low, mean, high = (number(v, 2 if max(values) <= 1 else 1) for v in (min(values), fmean(values), max(values)))
    return mean if low == high else f"{mean} ({low} to {high})"
