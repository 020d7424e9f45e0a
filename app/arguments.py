"""Reads what tasks are given on the command line, refusing what cannot be with the allowed form."""

from __future__ import annotations

import math
from typing import cast, get_args

from app.errors import UsageError
from loadtest.plan import Design, Objectives


def names(text: str, what: str, example: str = "baseline,v1,v2") -> tuple[str, ...]:
    """Comma-separated names, each once; example: what one may give where none is given."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise UsageError(f"no {what} given; for example --{what} {example}")
    if len(set(found)) != len(found):
        raise UsageError(f"--{what} {text}: a name is given twice")
    return found


def numbers(text: str, what: str, example: str = "1,8,48") -> tuple[int, ...]:
    """Comma-separated whole numbers; order and range are the plan's business. example: what one may give."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as e:
        raise UsageError(f"--{what} {text!r}: whole numbers separated by commas, for example {example}") from e


def number(text: str, what: str) -> float:
    """One finite number; an empty text is refused."""
    try:
        found = float(text)
    except ValueError as e:
        raise UsageError(f"--{what} {text!r} is not a number") from e
    if not math.isfinite(found):
        raise UsageError(f"--{what} {text!r} is not a finite number")
    return found


def positive(text: str, what: str, most: float) -> float:
    """One number above 0 and up to the most that makes sense."""
    found = number(text, what)
    if not 0 < found <= most:
        raise UsageError(f"--{what} {text} is out of range; above 0, at most {most:,.0f}")
    return found


def at_least(value: int, least: int, what: str) -> int:
    """A whole number that is not too small."""
    if value < least:
        raise UsageError(f"--{what} {value} is out of range; at least {least}")
    return value


def integer(text: str, what: str) -> int | None:
    """One whole number; None for an empty text."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError as e:
        raise UsageError(f"--{what} {text!r} is not a whole number") from e


def pair(text: str, what: str) -> tuple[int, int]:
    """Two whole numbers, such as prompt and output length."""
    found = numbers(text, what, "1024,256")
    if len(found) != 2:
        raise UsageError(f"--{what} {text!r}: two whole numbers, for example 1024,256")
    return found[0], found[1]


def design(text: str) -> Design:
    """A block design by name."""
    if text not in get_args(Design):
        raise UsageError.unknown("design", text, get_args(Design))
    return cast(Design, text)


def objectives(text: str) -> Objectives | None:
    """Limits such as ttft=500,tpot=50,e2e=20000 in milliseconds; None for an empty text."""
    if not text:
        return None
    limits = dict[str, float]()
    for part in names(text, "slo"):
        name, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"--slo {part!r}: NAME=MILLISECONDS, for example ttft=500,tpot=50")
        if name not in ("ttft", "tpot", "e2e"):
            raise UsageError.unknown("objective", name, ("ttft", "tpot", "e2e"))
        if f"{name}_ms" in limits:
            raise UsageError(f"--slo {text}: {name} is given twice")
        limits[f"{name}_ms"] = limit_ms = number(value, f"slo {name}")
        if limit_ms <= 0:
            raise UsageError(f"--slo {part} is out of range; a limit is a number of ms above 0")
    return Objectives(**limits)
