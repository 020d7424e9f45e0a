"""Charts of one variant's effect: intervals per concurrency, and the block differences they come from."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from app.report.chart import Axis, Panel, padded, tag
from app.report.judged import Judged, Level, Range
from app.report.predictions import Prediction
from app.report.wording import interval, predicted_range, signed

OUTCOME_MARKS = {
    "better": "triangle",
    "worse": "down",
    "equivalent": "square",
    "undecided": "circle",
    "invalid": "cross",
}
WIDTH, LEFT, WORDS_AT = 520.0, 56.0, 266.0
TOP, ROW = 20.0, 42.0
# How far beyond all that the blocks showed an interval is drawn, in widths of it.
REACH = 3.0


def forest(judged: Judged, delta: float, foreseen: Mapping[int, Prediction]) -> Markup:
    """Effect with its simultaneous interval per concurrency; the margin is shaded, predictions are bracketed.

    The axis is made for the intervals, as far as they lie near what the blocks themselves showed: an interval or a
    prediction that reaches beyond it is an arrow at the edge, its range in words.
    """
    bottom = TOP + 6 + ROW * len(judged.levels)
    span = padded(_near(judged, delta), 0.08)
    panel = Panel(Axis(*span, LEFT, WORDS_AT - 14), Axis(0, 1, bottom, TOP), WIDTH, bottom + 42)
    _margin(panel, panel.x, delta)
    ticks = panel.x.ticks(5)
    panel.grid_x(ticks, _signs(ticks), f"effect on output tok/s against {judged.control}, %")
    for i, level in enumerate(judged.levels):
        _forest_row(panel, level, TOP + ROW * (i + 0.5), foreseen.get(level.concurrency))
    return panel.svg(f"Effect of {judged.variant} against {judged.control} by concurrency")


def _seen(judged: Judged, delta: float) -> list[float]:
    """Every block's difference and the margin."""
    return [*(d for level in judged.levels for d in level.differences), -100 * delta, 100 * delta]


def _near(judged: Judged, delta: float) -> list[float]:
    """What was seen, and intervals' ends; those of few blocks may lie far out, where they would crush the rest."""
    seen = _seen(judged, delta)
    far = REACH * (max(seen) - min(seen))
    ends = [end for level in judged.levels for end in level.simultaneous or ()]
    return [*seen, *(end for end in ends if min(seen) - far <= end <= max(seen) + far)]


def _signs(ticks: tuple[float, ...]) -> list[str]:
    whole = all(t == round(t) for t in ticks)
    return [signed(t, 0 if whole else 1) for t in ticks]


def _margin(panel: Panel, axis: Axis, delta: float) -> None:
    low, zero, high = axis(-100 * delta), axis(0), axis(100 * delta)
    if axis is panel.x:
        top, bottom = panel.y.end, panel.y.start
        panel.add(tag("rect", x=low, y=top, width=high - low, height=bottom - top, class_="margin"))
        panel.add(tag("line", x1=zero, x2=zero, y1=top, y2=bottom, class_="zero"))
    else:
        left, right = panel.x.start, panel.x.end
        panel.add(tag("rect", x=left, y=high, width=right - left, height=low - high, class_="margin"))
        panel.add(tag("line", x1=left, x2=right, y1=zero, y2=zero, class_="zero"))


def _forest_row(panel: Panel, level: Level, y: float, foreseen: Prediction | None) -> None:
    panel.text(LEFT - 8, y + 4, f"C={level.concurrency}", "label", "end")
    found = f" {signed(level.effect_pct)} ({interval(*level.simultaneous)})" if level.simultaneous else ""
    words = (tag("tspan", level.outcome, class_=f"outcome {level.outcome}"), tag("tspan", found, class_="tick"))
    notes = ["two modes"] if level.modes else []
    if foreseen is not None:
        notes.append(f"predicted {predicted_range(*foreseen.predicted)}: {foreseen.outcome}")
        _bracket(panel, foreseen.predicted, y + 13)
    panel.add(tag("text", *words, x=WORDS_AT, y=y + (1 if notes else 4), class_="label"))
    panel.text(WORDS_AT, y + 16, "; ".join(notes), "tick")
    if level.effect_pct is not None and level.simultaneous is not None:
        _whisker(panel, level, level.effect_pct, level.simultaneous, y)


def _whisker(panel: Panel, level: Level, effect: float, ends: Range, y: float) -> None:
    kind = f"outcome {level.outcome}"
    words = f"C={level.concurrency}: {signed(effect)} % ({interval(*ends)}), {level.outcome}"
    panel.mark(panel.x(effect), y, OUTCOME_MARKS.get(level.outcome, "circle"), f"mark {kind}", 3.6, words)
    low, high = (panel.x(min(max(end, panel.x.low), panel.x.high)) for end in ends)
    panel.add(tag("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker {kind}"))
    for x, end, inward in ((low, ends[0], 6.0), (high, ends[1], -6.0)):
        if panel.x.low <= end <= panel.x.high:
            panel.add(tag("line", x1=x, x2=x, y1=y - 7, y2=y + 7, class_=f"whisker {kind}"))
        else:
            for half in (-5.0, 5.0):
                panel.add(tag("line", x1=x + inward, x2=x, y1=y + half, y2=y, class_=f"whisker {kind}"))


def _bracket(panel: Panel, predicted: Range, y: float) -> None:
    low, high = (panel.x(min(max(end, panel.x.low), panel.x.high)) for end in predicted)
    if low < high:
        # An end that lies outside the scale is left open.
        left = f"M{low:.1f} {y - 4:.1f}V{y:.1f}" if predicted[0] >= panel.x.low else f"M{low:.1f} {y:.1f}"
        d = f"{left}H{high:.1f}" + (f"V{y - 4:.1f}" if predicted[1] <= panel.x.high else "")
    else:
        way = 9 if predicted[0] >= panel.x.high else -9
        d = f"M{low - way:.1f} {y:.1f}H{low:.1f}m{-way * 0.5:.1f} -4L{low:.1f} {y:.1f}l{-way * 0.5:.1f} 4"
    title = tag("title", f"predicted {predicted_range(*predicted)} %")
    panel.add(tag("g", title, tag("path", d=d), class_="predicted"))


def differences(judged: Judged, delta: float) -> Markup:
    """Every block's own effect as a dot, per concurrency, with the estimate as a bar; nothing is averaged away."""
    bottom = TOP + 6 + ROW * len(judged.levels)
    span = padded(_seen(judged, delta), 0.08)
    across = Axis(-0.5, len(judged.levels) - 0.5, LEFT, WIDTH - 8)
    panel = Panel(across, Axis(*span, bottom, TOP + 4), WIDTH, bottom + 42)
    _margin(panel, panel.y, delta)
    ticks = panel.y.ticks(6)
    panel.grid_y(ticks, _signs(ticks), "block difference, %")
    panel.grid_x([], [], "concurrency")
    for i, level in enumerate(judged.levels):
        panel.text(panel.x(i), bottom + 16, str(level.concurrency), "tick", "middle")
        _block_dots(panel, i, level, judged.blocks)
    return panel.svg(f"Block differences of {judged.variant} against {judged.control}")


def _block_dots(panel: Panel, i: int, level: Level, blocks: tuple[int, ...]) -> None:
    count = len(blocks)
    room = min(0.72, 0.1 * count)
    if level.effect_pct is not None:
        y, left, right = panel.y(level.effect_pct), panel.x(i - 0.42), panel.x(i + 0.42)
        panel.add(tag("line", x1=left, x2=right, y1=y, y2=y, class_="mean"))
    for n, (block, value) in enumerate(zip(blocks, level.differences, strict=True)):
        at = i + room * ((n + 0.5) / count - 0.5)
        words = f"C={level.concurrency}, block {block + 1}: {signed(value, 2)} %"
        panel.mark(panel.x(at), panel.y(value), "circle", f"dot outcome {level.outcome}", 3.4, words)
