"""How figures are written for people: signs, units, ranges, and a word for what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable

UNKNOWN = "-"


def number(value: float | None, digits: int | None = None) -> str:
    """A figure with sensible digits (1,234, 123.4 or 12.34 unless told), '-' when it is missing."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if digits is None:
        digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    return f"{value:,.{digits}f}"


def signed(value: float | None, digits: int = 1) -> str:
    """A signed figure; what rounds to zero is written without a sign."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:+,.{digits}f}"
    return text[1:] if not text.strip("+-0.") else text


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """A range of signed figures: '-8.0 to -6.1'."""
    return f"{signed(low, digits)} to {signed(high, digits)}" if known(low, high) else UNKNOWN


def predicted_range(low: float, high: float) -> str:
    """A predicted range as it was written, to two decimals: '+15 to +25', '-0.5 to +0.5'; a computed one to one."""
    return interval(low, high, next((n for n in (0, 1, 2) if (low, high) == (round(low, n), round(high, n))), 1))


def known(*values: float | None) -> bool:
    """Whether every value is a finite number."""
    return all(v is not None and math.isfinite(v) for v in values)


def p_value(value: float | None) -> str:
    """A p-value; tiny ones as '<0.001'."""
    if not known(value) or value is None:
        return UNKNOWN
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def listed(items: Iterable[object], last: str = "and") -> str:
    """'1, 8 and 96'."""
    words = [str(i) for i in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""


def counted(count: int, noun: str) -> str:
    """'1 block', '4 blocks'."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
