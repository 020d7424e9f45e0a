"""What a streamed completion said: when its tokens arrived, how many it reports, and how it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.errors import printable
from loadtest.client.sse import Event, Stream

DONE = b"[DONE]"
# What a column of rows.parquet holds; a server that reports more reports nothing.
MAX_COUNT = 2**31 - 1
LIMIT_ERROR_CHARACTERS = 200
LIMIT_FINISH_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Reply:
    """The facts of one stream. Content events are those with non-empty text on any channel.

    reads: index of the read that brought each content event. tokens: tokens of each, from the cumulative usage when
    the server sends it (tokens of events without visible text fall to the next content event), else one each, else
    the final usage spread evenly. source says which: "usage", "events", "spread". silent_tokens: tokens after the
    last visible text. glued: content events that share their read with an earlier one.
    """

    reads: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    source: str = "events"
    silent_tokens: int = 0
    glued: int = 0
    usage_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str = ""
    error_kind: str = ""
    error: str = ""


class ReplyReader:
    """Reads the events of one stream in order; `reply` sums up."""

    def __init__(self) -> None:
        self._reads: list[int] = []
        self._cumulative: list[int | None] = []
        self._usage: Mapping[str, Any] = {}
        self._finish = self._error_kind = self._error = ""
        self._done = False

    def feed(self, event: Event) -> None:
        """Takes the next event; whatever is wrong with it becomes the reply's error."""
        if event.data == DONE:
            self._done = True
            return
        try:
            body = json.loads(event.data)
            if event.name == b"error" or body.get("error") or body.get("object") == "error":
                self._fail("stream_error", _error_text(body))
            else:
                self._take(body, event.read)
        except (ValueError, AttributeError, TypeError, RecursionError) as e:
            self._fail("bad_event", f"not a completion ({e}): {event.data[:80]!r}")

    def reply(self, stream: Stream | None = None) -> Reply:
        """The facts; a stream without its terminator, its usage or its promised end is marked."""
        if stream is not None and not self._done and not self._error_kind:
            cut = f" inside {stream.tail[:60]!r}" if stream.tail.strip() else ""
            self._fail("no_terminator", f"the stream ended without [DONE]{cut}")
        usage = _count(self._usage, "completion_tokens")
        if usage is None and not self._error_kind:
            self._fail("no_usage", "the server reported no usage; output length is unknown")
        tokens, source, silent = _tokens(self._cumulative, usage)
        details = self._usage.get("prompt_tokens_details")
        return Reply(
            reads=tuple(self._reads),
            tokens=tokens,
            source=source,
            silent_tokens=silent,
            glued=sum(a == b for a, b in pairwise(self._reads)),
            usage_tokens=usage,
            prompt_tokens=_count(self._usage, "prompt_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
            finish_reason=self._finish,
            error_kind=self._error_kind,
            error=self._error,
        )

    def _take(self, body: Mapping[str, Any], read: int) -> None:
        # Usage first: it may come in an event with empty text or without choices (sgl-project/sglang#24254).
        usage = body.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        visible = False
        for choice in body.get("choices") or ():
            visible = visible or has_text(choice)
            finish = choice.get("finish_reason")
            self._finish = printable(finish, LIMIT_FINISH_CHARACTERS) if isinstance(finish, str) else self._finish
        if visible:
            self._reads.append(read)
            self._cumulative.append(_count(usage, "completion_tokens"))

    def _fail(self, kind: str, text: str) -> None:
        if not self._error_kind:
            # Parquet takes no unpaired surrogates, and a terminal acts on control characters.
            self._error_kind, self._error = kind, printable(text, LIMIT_ERROR_CHARACTERS)


def read_reply(stream: Stream) -> Reply:
    """The facts of a whole stream."""
    reader = ReplyReader()
    for event in stream.events:
        reader.feed(event)
    return reader.reply(stream)


def has_text(choice: Mapping[str, Any]) -> bool:
    """Whether a choice shows text: completion text, content, reasoning under either name, or tool arguments.

    A server that sends the reasoning under both names sends it once in one event, so it counts once.
    """
    part = choice.get("delta") or choice
    if any(part.get(name) for name in ("text", "content", "reasoning_content", "reasoning")):
        return True
    return any((call.get("function") or {}).get("arguments") for call in part.get("tool_calls") or ())


def _tokens(cumulative: list[int | None], usage: int | None) -> tuple[tuple[int, ...], str, int]:
    count = len(cumulative)
    known = [c for c in cumulative if c is not None]
    if count and len(known) == count and known[0] > 0 and all(a <= b for a, b in pairwise(known)):
        silent = (usage or known[-1]) - known[-1]
        steps = [b - a for a, b in pairwise([0, *known])]
        return (*steps[:-1], steps[-1] + silent), "usage", silent
    if usage is None or usage == count or not count:
        return (1,) * count, "events", 0
    ends = [round(usage * i / count) for i in range(count + 1)]
    return tuple(b - a for a, b in pairwise(ends)), "spread", 0


def _count(usage: object, key: str) -> int | None:
    value = usage.get(key) if isinstance(usage, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_COUNT else None


def _error_text(body: Mapping[str, Any]) -> str:
    error = body.get("error") or body
    return str(error.get("message") if isinstance(error, dict) else error)
