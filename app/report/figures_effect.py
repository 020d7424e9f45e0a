"""Charts of one variant's effect: intervals per concurrency, and the block differences they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from app.report.chart import Axis, Panel, padded, tag
from app.report.judged import Judged, Level, Range
from app.report.wording import interval, known, signed

OUTCOME_MARKS = {
    "better": "triangle",
    "worse": "down",
    "equivalent": "square",
    "undecided": "circle",
    "invalid": "cross",
}
ROW = 34.0
WIDTH = 460.0


def effect_range(judged: Iterable[Judged], delta: float, predicted: Iterable[Range] = ()) -> Range:
    """Ends of an effect axis that every variant of a campaign shares, so that panels can be compared, in percent."""
    levels = [level for j in judged for level in j.levels]
    ends = [e for level in levels if level.simultaneous for e in level.simultaneous]
    ends += [d for level in levels for d in level.differences]
    return padded(ends, 0.06, [-100 * delta, 100 * delta, *(e for r in predicted for e in r)])


def forest(judged: Judged, span: Range, delta: float, predicted: Mapping[int, Range]) -> Markup:
    """Effect with its simultaneous interval per concurrency; the margin is shaded, predictions are bracketed."""
    bottom = 26 + ROW * len(judged.levels)
    y = Axis(0, 1, bottom, 20)
    panel = Panel(Axis(*span, 58, 330), y, WIDTH, bottom + 42)
    _margin(panel, delta)
    ticks = panel.x.ticks(5)
    panel.grid_x(
        ticks,
        [signed(t, 0 if all(t == round(t) for t in ticks) else 1) for t in ticks],
        f"effect on tok/s against {judged.control}, %",
    )
    for i, level in enumerate(judged.levels):
        _forest_row(panel, level, 20 + ROW * (i + 0.5), predicted.get(level.concurrency))
    return panel.svg(f"Effect of {judged.variant} against {judged.control} by concurrency")


def _margin(panel: Panel, delta: float) -> None:
    left, right = panel.x(-100 * delta), panel.x(100 * delta)
    top, bottom = panel.y.end, panel.y.start
    panel.add(tag("rect", x=left, y=top, width=right - left, height=bottom - top, class_="margin"))
    panel.add(tag("line", x1=panel.x(0), x2=panel.x(0), y1=top, y2=bottom, class_="zero"))


def _forest_row(panel: Panel, level: Level, y: float, predicted: Range | None) -> None:
    panel.text(50, y + 4, f"C={level.concurrency}", "label", "end")
    panel.text(342, y + 4, level.outcome, f"label outcome {level.outcome}")
    if predicted is not None:
        _bracket(panel, predicted, y + 10)
    if level.effect_pct is None or not known(level.effect_pct):
        return
    low, high = level.simultaneous or (level.effect_pct, level.effect_pct)
    words = f"C={level.concurrency}: {signed(level.effect_pct)} % [{interval(low, high)}], {level.outcome}"
    kind = f"outcome {level.outcome}"
    panel.add(tag("line", x1=panel.x(low), x2=panel.x(high), y1=y, y2=y, class_=f"whisker {kind}"))
    for end in (low, high):
        panel.add(tag("line", x1=panel.x(end), x2=panel.x(end), y1=y - 5, y2=y + 5, class_=f"whisker {kind}"))
    panel.mark(panel.x(level.effect_pct), y, OUTCOME_MARKS.get(level.outcome, "circle"), f"mark {kind}", 5, words)


def _bracket(panel: Panel, predicted: Range, y: float) -> None:
    low, high = (min(max(e, panel.x.low), panel.x.high) for e in predicted)
    left, right = panel.x(low), panel.x(high)
    d = f"M{left:.1f} {y - 3:.1f}V{y:.1f}H{right:.1f}V{y - 3:.1f}"
    title = tag("title", f"predicted {interval(*predicted, 0)} %")
    panel.add(tag("g", title, tag("path", d=d), class_="predicted"))


def differences(judged: Judged, span: Range, delta: float) -> Markup:
    """Every block's own effect as a dot, per concurrency, with the mean as a bar; nothing is averaged away."""
    levels = judged.levels
    panel = Panel(Axis(-0.5, len(levels) - 0.5, 58, 448), Axis(*span, 250, 24), WIDTH, 290)
    top, bottom = panel.y(100 * delta), panel.y(-100 * delta)
    panel.add(tag("rect", x=58, y=top, width=390, height=bottom - top, class_="margin"))
    ticks = panel.y.ticks(6)
    panel.grid_y(
        ticks, [signed(t, 0 if all(t == round(t) for t in ticks) else 1) for t in ticks], "block difference, %"
    )
    panel.add(tag("line", x1=58, x2=448, y1=panel.y(0), y2=panel.y(0), class_="zero"))
    panel.grid_x([], [], "concurrency")
    for i, level in enumerate(levels):
        panel.text(panel.x(i), 266, str(level.concurrency), "tick", "middle")
        _block_dots(panel, i, level)
    return panel.svg(f"Block differences of {judged.variant} against {judged.control}")


def _block_dots(panel: Panel, i: int, level: Level) -> None:
    count = len(level.differences)
    room = min(0.7, 0.09 * count)
    for n, value in enumerate(level.differences):
        at = i + room * ((n + 0.5) / count - 0.5)
        words = f"C={level.concurrency}, block {n + 1}: {signed(value, 2)} %"
        panel.mark(panel.x(at), panel.y(value), "circle", f"dot outcome {level.outcome}", 3.4, words)
    if level.effect_pct is not None and known(level.effect_pct):
        y, left, right = panel.y(level.effect_pct), panel.x(i - 0.4), panel.x(i + 0.4)
        panel.add(tag("line", x1=left, x2=right, y1=y, y2=y, class_="mean"))
