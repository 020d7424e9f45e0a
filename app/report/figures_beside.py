"""Charts of readings beside the load: one series through the starts of a block, laid end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from markupsafe import Markup

from app.report.beside import Beside
from app.report.chart import Axis, Panel, padded, tag
from app.report.figures_load import Styles

WIDTH, TOP, BOTTOM = 960.0, 36.0, 150.0
GAP_SHARE = 0.015


def charts(read: Iterable[Beside], ending: str, of: Styles) -> dict[int, Markup]:
    """A chart a block of every series whose name ends so; blocks without such a series are left out."""
    ordered = sorted(read, key=lambda b: (b.block, b.start))
    blocks = {block: list(group) for block, group in groupby(ordered, key=lambda b: b.block)}
    return {
        block: _chart(starts, ending, of)
        for block, starts in blocks.items()
        if any(name.endswith(ending) for start in starts for name in start.series)
    }


def _chart(starts: Sequence[Beside], ending: str, of: Styles) -> Markup:
    gap = GAP_SHARE * sum(s.span_s for s in starts)
    total = sum(s.span_s + gap for s in starts)
    values = (v for s in starts for name, points in s.series.items() if name.endswith(ending) for _, v in points)
    low, high = padded(values, include=(0.0,) if ending.endswith("requests") else ())
    panel = Panel(Axis(0, total, 58, WIDTH - 8), Axis(max(0.0, low), high, BOTTOM, TOP), WIDTH, BOTTOM + 24)
    ticks = panel.y.ticks(4)
    panel.grid_y(ticks, [f"{t:,g}" for t in ticks], ending)
    begin = 0.0
    for start in starts:
        _life(panel, start, ending, begin, of[start.variant])
        panel.text(panel.x(begin + start.span_s / 2), BOTTOM + 16, start.variant, "label", "middle")
        begin += start.span_s + gap
    return panel.svg(f"{ending} through block {starts[0].block + 1}")


def _life(panel: Panel, start: Beside, ending: str, begin: float, style: int) -> None:
    for w in start.windows:
        left, right = panel.x(begin + w.begin_s), panel.x(begin + w.end_s)
        panel.add(tag("rect", x=left, y=TOP, width=max(right - left, 0.5), height=BOTTOM - TOP, class_="window"))
        panel.text((left + right) / 2, TOP - 4, str(w.concurrency), "tick", "middle")
    for name, points in start.series.items():
        if name.endswith(ending):
            panel.line(((begin + at, value) for at, value in points), f"trace s{style % 7}")
