"""How malformed input is tried, and what must come of it: a value, or one printable line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from app.errors import LIMIT_CHARACTERS, LabError

USUAL_EXAMPLES = 100
LONGEST_LINE = 12 * LIMIT_CHARACTERS


def tries(examples: int) -> settings:
    """Settings of a test with so many examples in the short form, and as many times more as the profile has."""
    factor = settings().max_examples / USUAL_EXAMPLES
    return settings(
        max_examples=round(examples * factor),
        derandomize=factor == 1,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def refusal(read: Callable[[], object]) -> str:
    """The line that refuses an input, empty when it is taken; anything but a LabError comes out as it is."""
    try:
        read()
    except LabError as error:
        line = str(error)
        if not line or not line.isprintable() or len(line) > LONGEST_LINE:
            raise ValueError(f"not one printable line: {line[:200]!r}") from error
        return line
    return ""


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**31, 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "\0", "\x1b]0;x\x07", "\ud800", "../x", "/etc/passwd", "9" * 5000])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in plain data, as the keys and indices that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


def replaced(value: Any, at: tuple[Any, ...], new: Any, remove: bool = False) -> Any:
    """Plain data with another value at a place, or without that place."""
    if not at:
        return new
    key, *rest = at
    items = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    if remove and not rest:
        del items[key]
    else:
        items[key] = replaced(items[key], tuple(rest), new, remove)
    return items if isinstance(value, dict) else list(items.values())


@st.composite
def damaged(draw: st.DrawFn, good: Any) -> Any:
    """Good plain data with one to three places replaced by anything, or removed."""
    value = good
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(places(value)))
        value = replaced(value, at, draw(JSON), remove=draw(st.booleans()))
    return value


@st.composite
def torn(draw: st.DrawFn, good: bytes) -> bytes:
    """Good bytes with a piece cut out, replaced or repeated, or cut off."""
    place, length = draw(st.integers(0, len(good))), draw(st.integers(0, 16))
    piece = draw(st.binary(max_size=8) | st.just(good[place : place + length] * 2))
    return good[:place] + piece + (b"" if draw(st.booleans()) else good[place + length :])
