"""Stream shapes of the clocked mock: how a fixed token schedule is put on the wire, and how it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.errors import UsageError
from app.yaml_file import Entry, read_yaml

CHOICES: Mapping[str, tuple[str, ...]] = {
    "opening": ("api", "none", "role", "empty", "null"),
    "channel": ("content", "reasoning_content", "reasoning", "both"),
    "usage": ("asked", "final", "empty", "choiceless", "each", "none"),
    "framing": ("event", "split", "glued", "multibyte"),
    "newline": ("lf", "crlf"),
    "failure": ("none", "status", "error_event", "close", "reset", "end", "hang", "garbage", "silent"),
    "finish": ("length", "stop"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to answer. Times are wall milliseconds; the defaults are what SGLang does when all is well.

    ttft_ms, itl_ms: first token after the request, then one every itl_ms. tick: all streams leave on one grid of
    itl_ms. speed: divides all times (1.1 is a server 10 % faster). slow_start_tokens, slow_start_factor: the first
    gaps are that much longer. stall_after, stall_ms: a pause before that token (0-based). tokens_per_event: repeated
    cyclically, [1, 3] is 1, 3, 1, 3... channel: where text goes; reasoning_tokens: that many first tokens go to
    reasoning_content. opening, opening_ms after the request: api (a chat's role event), none, role, empty (content
    ""), null (content null). usage: asked (as the request asks), final (in the last content event), empty (in an
    event whose text is ""), choiceless, each, none. comment_every: an SSE comment before every k-th event. framing:
    event (one chunk each), split (cut in pieces, split_gap_ms apart, the last one on time), glued (`glue` events in
    one chunk, leaving with the last), multibyte (cut inside a character). newline: lf or crlf. text: every token's
    text; "" means words. chunked: false ends the body by closing. terminator: whether [DONE] is sent. short_by:
    tokens fewer than asked. finish: finish_reason. failure, after fail_after tokens: status (answers `status` instead
    of a stream), error_event (inside the 200 stream), close (no terminator, connection closed), reset, end (body
    ended properly but no finish, usage or [DONE]), hang (silence, connection open), garbage (an event that is not
    JSON, then on), silent (no answer at all).
    """

    ttft_ms: float = 50.0
    itl_ms: float = 10.0
    tick: bool = False
    speed: float = 1.0
    slow_start_tokens: int = 0
    slow_start_factor: float = 1.0
    stall_after: int = 0
    stall_ms: float = 0.0
    tokens_per_event: tuple[int, ...] = (1,)
    opening: str = "api"
    opening_ms: float = 20.0
    channel: str = "content"
    reasoning_tokens: int = 0
    usage: str = "asked"
    comment_every: int = 0
    framing: str = "event"
    split_gap_ms: float = 2.0
    glue: int = 3
    newline: str = "lf"
    text: str = ""
    chunked: bool = True
    terminator: bool = True
    short_by: int = 0
    finish: str = "length"
    failure: str = "none"
    fail_after: int = 0
    status: int = 500


SETTINGS = tuple(Shape.__dataclass_fields__)
_MULTIBYTE = " é日🙂"
BUILTIN: Mapping[str, Shape] = MappingProxyType(
    {
        "plain": Shape(),
        "tick": Shape(tick=True),
        "role_first": Shape(opening="role"),
        "empty_first": Shape(opening="empty"),
        "null_first": Shape(opening="null"),
        "reasoning_content": Shape(channel="reasoning_content"),
        "reasoning": Shape(channel="reasoning"),
        "reasoning_both": Shape(channel="both"),
        "reasoning_then_content": Shape(reasoning_tokens=5),
        "four_tokens": Shape(tokens_per_event=(4,)),
        "mixed_tokens": Shape(tokens_per_event=(3, 1, 2)),
        "four_tokens_counted": Shape(tokens_per_event=(4,), usage="each"),
        "usage_final": Shape(usage="final"),
        "usage_empty": Shape(usage="empty"),
        "usage_choiceless": Shape(usage="choiceless"),
        "usage_each": Shape(usage="each"),
        "usage_none": Shape(usage="none"),
        "comments": Shape(comment_every=2),
        "split": Shape(framing="split"),
        "glued": Shape(framing="glued"),
        "multibyte": Shape(framing="multibyte", text=_MULTIBYTE),
        "crlf": Shape(newline="crlf"),
        "crlf_split": Shape(newline="crlf", framing="split"),
        "unchunked": Shape(chunked=False),
        "status_500": Shape(failure="status"),
        "status_503": Shape(failure="status", status=503),
        "status_400": Shape(failure="status", status=400),
        "error_first": Shape(failure="error_event"),
        "error_event": Shape(failure="error_event", fail_after=5),
        "close": Shape(failure="close", fail_after=5),
        "reset": Shape(failure="reset", fail_after=5),
        "no_finish": Shape(failure="end", fail_after=5),
        "hang": Shape(failure="hang", fail_after=5),
        "garbage": Shape(failure="garbage", fail_after=5),
        "silent": Shape(failure="silent"),
        "no_terminator": Shape(terminator=False),
        "short": Shape(short_by=3),
        "short_stop": Shape(short_by=3, finish="stop"),
        "stall": Shape(stall_after=5, stall_ms=300.0),
        "slow_start": Shape(slow_start_tokens=5, slow_start_factor=5.0),
        "slower_10": Shape(speed=0.9),
        "faster_10": Shape(speed=1.1),
    }
)


@dataclass(frozen=True, slots=True)
class Script:
    """Shapes by name. A request that names none gets `default`, or the `sequence` in order of arrival, repeated."""

    shapes: Mapping[str, Shape]
    default: str = "plain"
    sequence: tuple[str, ...] = ()

    def choose(self, asked: str, arrival: int) -> tuple[str, Shape]:
        """Name and shape for a request; arrival counts requests from 0."""
        name = asked or (self.sequence[arrival % len(self.sequence)] if self.sequence else self.default)
        if name not in self.shapes:
            raise UsageError.unknown("shape", name, list(self.shapes))
        return name, self.shapes[name]


def read_script(source: str) -> Script:
    """The script in a YAML or JSON file, or `builtin`; VariantError names the line that is wrong.

    Keys: default; sequence, a list of names; base, settings of every shape, the built-in ones too; shapes, name to
    settings, where `like: NAME` starts from another shape.
    """
    if source == "builtin":
        return Script(BUILTIN)
    top = read_yaml(Path(source)).mapping((), ("default", "sequence", "base", "shapes"))
    base = _settings(top["base"]) if "base" in top else {}
    shapes = {name: replace(shape, **base) for name, shape in BUILTIN.items()}
    for key, entry in top["shapes"].pairs() if "shapes" in top else ():
        shapes[key.text()] = _shape(entry, shapes, base)
    return Script(
        MappingProxyType(shapes),
        top["default"].choice(tuple(shapes)) if "default" in top else "plain",
        tuple(e.choice(tuple(shapes)) for e in top["sequence"].items()) if "sequence" in top else (),
    )


def _shape(entry: Entry, shapes: Mapping[str, Shape], base: dict[str, Any]) -> Shape:
    parts = entry.mapping((), ("like", *SETTINGS))
    start = shapes[parts["like"].choice(tuple(shapes))] if "like" in parts else Shape(**base)
    return replace(start, **_settings(entry))


def _settings(entry: Entry) -> dict[str, Any]:
    parts = entry.mapping((), ("like", *SETTINGS))
    return {name: _setting(name, value) for name, value in parts.items() if name != "like"}


def _setting(name: str, entry: Entry) -> Any:
    kind = str(Shape.__dataclass_fields__[name].type)
    if name in CHOICES:
        return entry.choice(CHOICES[name])
    if name == "tokens_per_event":
        return tuple(_at_least(1, e, e.integer()) for e in entry.items())
    if kind == "bool":
        return _flag(entry)
    if kind == "int":
        return _at_least(0, entry, entry.integer())
    if kind == "float":
        return _at_least(0.001 if name in ("speed", "itl_ms") else 0, entry, entry.number())
    return entry.text("(?s).*")


def _flag(entry: Entry) -> bool:
    value = entry.scalar()
    if not isinstance(value, bool):
        raise entry.refusal(f"must be true or false, not {value!r}")
    return value


def _at_least(low: float, entry: Entry, value: Any) -> Any:
    if value < low:
        raise entry.refusal(f"must be at least {low:g}, not {value:g}")
    return value
