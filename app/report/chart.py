"""Inline SVG charts: axes, ticks and marks that take their colours from the page's style sheet and need no script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

MARKERS = ("circle", "square", "triangle", "diamond", "down", "cross", "plus")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 4", "12 4")
_POLYGONS = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle": ((0, -1.25), (1.2, 0.9), (-1.2, 0.9)),
    "down": ((0, 1.25), (1.2, -0.9), (-1.2, -0.9)),
    "diamond": ((0, -1.4), (1.2, 0), (0, 1.4), (-1.2, 0)),
}


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """One element; attribute names lose a trailing underscore and use '-' for '_', None drops one, text is escaped."""
    pairs = ((k.rstrip("_").replace("_", "-"), v) for k, v in attributes.items() if v is not None)
    head = "".join(f' {k}="{escape(_short(v))}"' for k, v in pairs)
    return Markup(f"<{name}{head}>{''.join(escape(c) for c in children)}</{name}>")


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values low..high to pixels start..end; on a log axis both ends must be positive."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> tuple[float, ...]:
        """Round values inside the axis, about so many; 1-2-5 steps, or 1-2-5 decades on a long log axis."""
        return _decades(self.low, self.high, about) if self.log else _steps(self.low, self.high, about)


def _steps(low: float, high: float, about: int) -> tuple[float, ...]:
    least = (high - low) / (about + 1.5)
    unit = 10.0 ** math.floor(math.log10(least))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(i * step, 12) for i in range(first, last + 1))


def _decades(low: float, high: float, about: int) -> tuple[float, ...]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        found = tuple(m * 10.0**p for p in powers for m in mantissas if low <= m * 10.0**p <= high)
        if len(found) <= about + 2:
            break
    return found if len(found) > 2 else _steps(low, high, about)


def padded(values: Iterable[float], share: float = 0.06, include: Iterable[float] = ()) -> tuple[float, float]:
    """Ends of an axis that holds every finite value with some air; never an empty range."""
    known = [v for v in (*values, *include) if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    air = (high - low) * share or abs(high) * share or 1.0
    return low - air, high + air


@dataclass(slots=True)
class Panel:
    """One chart under construction: a frame of width x height pixels with an x and a y axis."""

    x: Axis
    y: Axis
    width: float
    height: float
    parts: list[Markup] = field(default_factory=list)

    def add(self, part: Markup) -> None:
        """Draws one element above those already there."""
        self.parts.append(part)

    def grid_x(self, ticks: Sequence[float], labels: Sequence[str], title: str) -> None:
        """Vertical grid lines with labels and the axis title below."""
        for value, label in zip(ticks, labels, strict=True):
            self.add(tag("line", x1=self.x(value), x2=self.x(value), y1=self.y.end, y2=self.y.start, class_="grid"))
            self.text(self.x(value), self.y.start + 16, label, "tick", "middle")
        self.text((self.x.start + self.x.end) / 2, self.y.start + 34, title, "axis", "middle")

    def grid_y(self, ticks: Sequence[float], labels: Sequence[str], title: str) -> None:
        """Horizontal grid lines with labels at the left and the axis title above."""
        for value, label in zip(ticks, labels, strict=True):
            self.add(tag("line", x1=self.x.start, x2=self.x.end, y1=self.y(value), y2=self.y(value), class_="grid"))
            self.text(self.x.start - 7, self.y(value) + 4, label, "tick", "end")
        self.text(0, 12, title, "axis", "start")

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        """Words at a pixel."""
        self.add(tag("text", words, x=x, y=y, class_=kind, text_anchor=anchor))

    def line(self, points: Iterable[tuple[float, float]], kind: str, dash: str = "") -> None:
        """A polyline through values; points that are not finite break it."""
        path, pen = [], "M"
        for px, py in points:
            if not (math.isfinite(px) and math.isfinite(py)):
                pen = "M"
                continue
            path.append(f"{pen}{self.x(px):.1f} {self.y(py):.1f}")
            pen = "L"
        self.add(tag("path", d="".join(path), class_=kind, stroke_dasharray=dash or None))

    def mark(self, px: float, py: float, shape: str, kind: str, size: float, title: str) -> None:
        """One marker at pixels, with words that a pointer or a screen reader finds."""
        self.add(tag("g", tag("title", title), _shape(px, py, shape, size), class_=kind))

    def svg(self, title: str) -> Markup:
        """The finished chart; title is its accessible name."""
        box = f"0 0 {self.width:g} {self.height:g}"
        return tag("svg", tag("title", title), *self.parts, viewBox=box, role="img", class_="chart")


def _shape(px: float, py: float, shape: str, size: float) -> Markup:
    if shape == "circle":
        return tag("circle", cx=px, cy=py, r=size * 1.05)
    if shape in ("cross", "plus"):
        a, b = (size, size) if shape == "cross" else (size * 1.3, 0.0)
        strokes = ((px - a, py - b, px + a, py + b), (px - b, py + a, px + b, py - a))
        return tag("path", d="".join(f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" for x, y, to_x, to_y in strokes))
    points = " ".join(f"{px + dx * size:.1f},{py + dy * size:.1f}" for dx, dy in _POLYGONS[shape])
    return tag("polygon", points=points)
