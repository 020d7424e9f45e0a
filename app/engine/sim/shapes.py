"""Stream shapes of the clocked mock: how a fixed token schedule is put on the wire, and how it goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.engine.sim.document import Document, read_document
from app.errors import UsageError

OPENINGS = ("api", "none", "role", "empty", "null")
CHANNELS = ("content", "reasoning_content", "reasoning", "both")
USAGES = ("asked", "final", "empty", "choiceless", "each", "none")
FRAMINGS = ("event", "split", "glued", "multibyte")
NEWLINES = ("lf", "crlf")
FAILURES = ("none", "status", "error_event", "close", "reset", "end", "hang", "garbage", "silent")


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to answer. Times are wall milliseconds; the defaults are what SGLang does when all is well.

    ttft_ms, itl_ms: first token after the request, then one every itl_ms. tick: all streams leave on one grid of itl_ms.
    speed: divides both times (1.1 is a server 10 % faster). slow_start_tokens, slow_start_factor: first gaps that much longer.
    stall_after, stall_ms: a pause before that token (0-based). tokens_per_event: repeated cyclically; (1, 3) is 1, 3, 1, 3...
    opening: before the first token: api (a chat's role event), none, role, empty (content ""), null (content null).
    opening_ms: when, after the request. channel, reasoning_tokens: where text goes; that many first tokens go to reasoning_content.
    usage: asked (as the request asks), final (in the last content event), empty (in an event whose text is ""), choiceless, each, none.
    comment_every: an SSE comment before every k-th event. framing: event (one chunk each), split (cut in pieces, split_gap_ms
    apart), glued (glue events in one chunk, leaving with the last), multibyte (cut inside a character). newline: lf or crlf.
    text: every token's text; "" means words. chunked: False ends the body by closing. terminator: whether [DONE] is sent.
    short_by: tokens fewer than asked. finish: finish_reason.
    failure, after fail_after tokens: status (answer `status` instead of a stream), error_event (inside the 200 stream), close (no
    terminator, connection closed), reset, end (body ended properly but no finish, usage or [DONE]), hang (silence, connection
    open), garbage (an event that is not JSON, then on), silent (no answer at all).
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
    """Shapes by name, and what a request gets that names none: `default`, or the `sequence` in order of arrival, repeated."""

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
    """The script in a YAML or JSON file, or `builtin` for the built-in shapes; UsageError names the line that is wrong.

    Keys: default, sequence (list of names), base (settings of every built-in shape too), shapes (name -> settings; `like: NAME`
    starts from another shape).
    """
    if source == "builtin":
        return Script(BUILTIN)
    document = read_document(Path(source))
    base = _settings(document.section("base"), Path(source)) if "base" in document else {}
    shapes = {name: replace(shape, **base) for name, shape in BUILTIN.items()}
    if "shapes" in document:
        section = document.section("shapes")
        for name in section:
            shapes[name] = _shape(section.section(name), shapes, base)
    script = Script(
        MappingProxyType(shapes),
        document.text("default", tuple(shapes)) if "default" in document else "plain",
        tuple(str(x) for x in document.value("sequence")) if "sequence" in document else (),
    )
    document.done(("base", "default", "sequence", "shapes"))
    for name in script.sequence:
        if name not in shapes:
            document.refuse("sequence", f"names {name!r}, no shape of this script")
    return script


def _shape(section: Document, shapes: Mapping[str, Shape], base: dict[str, Any]) -> Shape:
    start = shapes[section.text("like", tuple(shapes))] if "like" in section else Shape(**base)
    return replace(start, **_settings(section, section.path))


def _settings(section: Document, path: Path) -> dict[str, Any]:
    choices = {
        "opening": OPENINGS,
        "channel": CHANNELS,
        "usage": USAGES,
        "framing": FRAMINGS,
        "newline": NEWLINES,
        "failure": FAILURES,
        "finish": ("length", "stop"),
    }
    known = Shape.__dataclass_fields__
    found: dict[str, Any] = {}
    for key in section:
        if key not in known:
            continue
        kind = str(known[key].type)
        if key in choices:
            found[key] = section.text(key, choices[key])
        elif key == "tokens_per_event":
            found[key] = tuple(int(x) for x in section.numbers(key, 1, 1000))
        elif kind == "bool":
            found[key] = section.flag(key)
        elif kind == "int":
            found[key] = section.integer(key, 0, 1_000_000)
        elif kind == "float":
            found[key] = section.number(key, 0.001 if key == "speed" else 0, 1e7)
        else:
            found[key] = str(section.value(key))
    section.done((*known, "like"))
    return found
