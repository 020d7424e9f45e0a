"""Charts of load: throughput against concurrency and latency, gaps between tokens, tokens per second over a block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from app.report.chart import DASHES, MARKERS, Axis, Panel, padded, tag
from app.report.measured import Key, Measured
from app.report.streams import GAP_EDGES_MS, Stream
from app.report.wording import number

Styles = Mapping[str, int]
Counts = NDArray[np.int64]
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
WIDTH, BOTTOM, HEIGHT = 500.0, 262.0, 304.0
RIGHT = WIDTH - 18
MARKED_SHARES = (0.5, 0.1, 0.01)


def styles(variants: Sequence[str]) -> Styles:
    """A number per variant for its colour, marker and dash, the same in every chart of a report."""
    return {name: i for i, name in enumerate(variants)}


def key(style: int) -> Markup:
    """A variant's line and marker, for legends."""
    line = tag("line", x1=0, x2=34, y1=7, y2=7, class_=f"curve s{style % 7}", stroke_dasharray=_dash(style))
    panel = Panel(Axis(0, 1, 0, 34), Axis(0, 1, 14, 0), 34, 14, [line])
    panel.mark(17, 7, MARKERS[style % 7], f"point s{style % 7}", 4, "")
    return tag("svg", *panel.parts, viewBox="0 0 34 14", class_="key", aria_hidden="true")


def throughput(
    measured: Mapping[Key, Measured], of: Styles, knees: Mapping[str, int], levels: Sequence[int], whole: bool
) -> Markup:
    """Output tokens per second against concurrency: a dot a start, a line through each variant's means, knees marked.

    whole: from zero; else the axes close in on these levels, so that slopes can be told apart.
    """
    shown = {k: m for k, m in measured.items() if k[1] in levels}
    dots = [rate for m in shown.values() for _, _, rate in m.starts]
    floor = (0.0,) if whole else ()
    panel = _panel(padded(map(float, levels), include=floor), padded(dots, include=floor))
    panel.grid_x(levels, _thinned(panel.x, levels), "concurrency")
    _grid_y(panel, "output tok/s" if whole else "output tok/s (not from zero)")
    for name, style in of.items():
        line = [shown[name, c] for c in levels if (name, c) in shown]
        _knee(panel, knees.get(name), levels, style)
        for x, rate in ((m.concurrency, rate) for m in line for _, _, rate in m.starts):
            panel.add(tag("circle", cx=panel.x(x), cy=panel.y(rate), r=1.6, class_=f"start s{style % 7}"))
        words = [f"{name}, C={m.concurrency}: {number(m.tokens_per_s)} tok/s" for m in line]
        _curve(panel, [(float(m.concurrency), m.tokens_per_s) for m in line], words, style)
    return panel.svg(f"Output tokens per second against concurrency {levels[0]} to {levels[-1]}")


def _knee(panel: Panel, knee: int | None, levels: Sequence[int], style: int) -> None:
    if knee is not None and knee in levels:
        # Knees of several variants at one level stand side by side.
        x = panel.x(knee) + 3 * style
        panel.add(tag("line", x1=x, x2=x, y1=panel.y.end, y2=BOTTOM, class_=f"knee s{style % 7}"))


def latency(measured: Mapping[Key, Measured], of: Styles) -> Markup:
    """Throughput against time per output token; better is up and to the left. Points carry their concurrency."""
    shown = [m for m in measured.values() if math.isfinite(m.tpot_p50_ms)]
    panel = _panel(padded((m.tpot_p50_ms for m in shown), 0.1), padded((m.tokens_per_s for m in shown), include=(0,)))
    ticks = panel.x.ticks(6)
    panel.grid_x(
        ticks,
        [number(t, 0 if all(t == round(t) for t in ticks) else 1) for t in ticks],
        "time per output token (median), ms",
    )
    _grid_y(panel, "output tok/s")
    for name, style in of.items():
        line = sorted((m for m in shown if m.variant == name), key=lambda m: m.concurrency)
        points = [(m.tpot_p50_ms, m.tokens_per_s) for m in line]
        _curve(
            panel,
            points,
            [f"{name}, C={m.concurrency}: {number(m.tpot_p50_ms)} ms, {number(m.tokens_per_s)} tok/s" for m in line],
            style,
        )
    for level in {m.concurrency for m in shown}:
        last = max((m for m in shown if m.concurrency == level), key=lambda m: m.tpot_p50_ms)
        panel.text(panel.x(last.tpot_p50_ms) + 7, panel.y(last.tokens_per_s) + 14, str(level), "tick")
    return panel.svg("Output tokens per second against time per output token")


def gaps(pooled: Mapping[tuple[str, int], Counts], concurrency: int, of: Styles, what: str) -> Markup:
    """Share of gaps longer than t, on log axes, so that tails can be seen."""
    curves = {name: _tail(pooled[name, concurrency]) for name in of if (name, concurrency) in pooled}
    curves = {name: curve for name, curve in curves.items() if len(curve[0])}
    longest = max((at[-1] for at, _ in curves.values()), default=10.0) * 1.1
    # A handful of events that came glued into one read must not stretch the axis to nothing.
    shortest = max(min((_at_share(c, 0.995) for c in curves.values()), default=1.0) * 0.9, longest / 1e3)
    least = max(1e-6, min((float(share[-1]) for _, share in curves.values()), default=1e-3))
    panel = Panel(Axis(shortest, longest, 58, RIGHT, log=True), Axis(least, 1, BOTTOM, 24, log=True), WIDTH, HEIGHT)
    ticks = panel.x.ticks(6)
    panel.grid_x(ticks, [f"{t:g}" for t in ticks], f"{what}, ms")
    shares = panel.y.ticks(5)
    panel.grid_y(shares, [f"{100 * s:g} %" for s in shares], "share that is longer")
    for name, (at, share) in curves.items():
        style = of[name]
        seen = at >= shortest
        panel.line(zip(at[seen], share[seen], strict=True), f"curve s{style % 7}", _dash(style) or "")
        for kept in MARKED_SHARES:
            x = max(shortest, _at_share((at, share), kept))
            words = f"{name}: {100 * kept:g} % longer than {number(x)} ms"
            panel.mark(panel.x(x), panel.y(kept), MARKERS[style % 7], f"point s{style % 7}", 3.6, words)
    return panel.svg(f"Distribution of {what} at concurrency {concurrency}")


def _at_share(curve: Curve, share: float) -> float:
    return float(np.interp(-share, -curve[1], curve[0]))


def _tail(counts: Counts) -> Curve:
    held = np.flatnonzero(counts)
    if not held.size:
        return np.empty(0), np.empty(0)
    window = slice(held[0], held[-1] + 1)
    above = 1 - np.cumsum(counts[window]) / counts.sum()
    keep = above > 0
    return GAP_EDGES_MS[1:][window][keep], above[keep]


def timeline(streams: Sequence[Stream], of: Styles) -> Markup:
    """Tokens per second through the starts of one block, laid end to end; steady windows are shaded and named."""
    width, gap = 960.0, 0.015
    spans = [len(s.rate) * s.bin_s for s in streams]
    total = sum(spans) * (1 + gap * len(spans))
    top = padded(x for s in streams for x in s.rate)[1]
    panel = Panel(Axis(0, total, 58, width - 8), Axis(0, top, 190, 36), width, 214)
    _grid_y(panel, "output tok/s", 4)
    begin = 0.0
    for stream, span in zip(streams, spans, strict=True):
        _life(panel, stream, begin, of[stream.variant])
        panel.text(panel.x(begin + span / 2), 206, f"{stream.variant} ({span:.0f} s)", "label", "middle")
        begin += span + total * gap / (1 + gap * len(spans))
    return panel.svg(f"Tokens per second through block {streams[0].block + 1}")


def _life(panel: Panel, stream: Stream, begin: float, style: int) -> None:
    for w in stream.windows:
        left, right = panel.x(begin + w.begin_s), panel.x(begin + w.end_s)
        panel.add(tag("rect", x=left, y=36, width=max(right - left, 0.5), height=154, class_="window"))
        panel.text((left + right) / 2, 32, str(w.concurrency), "tick", "middle")
    points = [(begin + (i + 0.5) * stream.bin_s, float(rate)) for i, rate in enumerate(stream.rate)]
    panel.line(points, f"trace s{style % 7}")


def by_block(streams: Iterable[Stream]) -> dict[int, list[Stream]]:
    """Streams of each block in the order of their starts."""
    ordered = sorted(streams, key=lambda s: (s.block, s.start))
    return {block: list(group) for block, group in groupby(ordered, key=lambda s: s.block)}


def _panel(x: tuple[float, float], y: tuple[float, float]) -> Panel:
    return Panel(Axis(max(0.0, x[0]), x[1], 58, RIGHT), Axis(max(0.0, y[0]), y[1], BOTTOM, 24), WIDTH, HEIGHT)


def _grid_y(panel: Panel, title: str, about: int = 5) -> None:
    ticks = panel.y.ticks(about)
    panel.grid_y(ticks, [f"{t:,g}" for t in ticks], title)


def _curve(panel: Panel, points: Sequence[tuple[float, float]], words: Sequence[str], style: int) -> None:
    panel.line(points, f"curve s{style % 7}", _dash(style) or "")
    for (x, y), title in zip(points, words, strict=True):
        panel.mark(panel.x(x), panel.y(y), MARKERS[style % 7], f"point s{style % 7}", 4, title)


def _dash(style: int) -> str | None:
    return DASHES[style % 7] or None


def _thinned(x: Axis, levels: Sequence[int]) -> list[str]:
    """Labels of levels; one that would touch its left neighbour is left empty."""
    labels, last = [], -math.inf
    for level in levels:
        fits = x(level) - last >= 18
        labels.append(str(level) if fits else "")
        last = x(level) if fits else last
    return labels
