"""What a shape puts on the wire for one request, and when: a pure function, played by the mock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from app.engine.sim.generation import Generation
from app.engine.sim.shapes import Shape
from app.engine.sim.streams import DONE, error_event, event, renderer, usage, words

COMMENT = b": keep-alive\n\n"
GARBAGE = b'data: {"id": "broken", "choices": [{\n\n'


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that leave at_ms after the request came (on the grid after that, when the shape ticks).

    tokens: of every content event that is complete with these bytes. then: what happens to the connection afterwards.
    """

    at_ms: float
    data: bytes
    tokens: tuple[int, ...] = ()
    then: str = ""


def token_times_ms(shape: Shape, count: int) -> list[float]:
    """When each token is to leave, in ms after the request."""
    times, now = [], shape.ttft_ms
    for i in range(count):
        if i:
            now += shape.itl_ms * (shape.slow_start_factor if i <= shape.slow_start_tokens else 1)
        if shape.stall_ms and i == shape.stall_after:
            now += shape.stall_ms
        times.append(now / shape.speed)
    return times


def timeline(shape: Shape, generation: Generation) -> Iterator[Write]:
    """Every write of one streamed answer, in order; at least one. Lazy, so that a long answer costs nothing at once."""
    for write in _framed(shape, _events(shape, generation)):
        yield replace(write, data=write.data.replace(b"\n", b"\r\n")) if shape.newline == "crlf" else write


def answer_tokens(shape: Shape, generation: Generation) -> int:
    """How many tokens the answer holds when it does not fail."""
    return max(1, generation.max_tokens - shape.short_by)


def _events(shape: Shape, generation: Generation) -> Iterator[Write]:
    total = answer_tokens(shape, generation)
    sent = min(total, shape.fail_after) if shape.failure not in ("none", "garbage") else total
    times = token_times_ms(shape, total)
    yield from _opening(shape, generation)
    for index, (first, last) in enumerate(_groups(shape, sent)):
        if shape.comment_every and index % shape.comment_every == 0:
            yield Write(times[last - 1], COMMENT)
        if shape.failure == "garbage" and first <= shape.fail_after < last:
            yield Write(times[last - 1], GARBAGE)
        data = _content(shape, generation, first, last, total)
        yield Write(times[last - 1], data, (last - first,))
    yield from (
        _failing(shape, times, sent) if shape.failure not in ("none", "garbage") else _closing(shape, generation, times)
    )


def _groups(shape: Shape, count: int) -> Iterator[tuple[int, int]]:
    first, index = 0, 0
    while first < count:
        size = shape.tokens_per_event[index % len(shape.tokens_per_event)]
        # Tokens that go to the reasoning channel and those that do not never share an event.
        border = shape.reasoning_tokens if first < shape.reasoning_tokens else count
        last = min(first + size, count, border)
        yield first, last
        first, index = last, index + 1


def _opening(shape: Shape, generation: Generation) -> Iterator[Write]:
    when = shape.opening_ms / shape.speed
    if shape.opening == "api":
        data = renderer(generation).opening()
        if data:
            yield Write(when, data)
    elif shape.opening == "role":
        yield Write(when, _event(generation, {"role": "assistant"}, None))
    elif shape.opening in ("empty", "null"):
        text = "" if shape.opening == "empty" else None
        yield Write(when, _event(generation, {"role": "assistant", "content": text}, None))


def _content(shape: Shape, generation: Generation, first: int, last: int, total: int) -> bytes:
    text = shape.text * (last - first) or "".join(words(generation.prompt_sha256, last - first, first))
    finish = shape.finish if last == total else None
    counted = shape.usage == "each" or (shape.usage == "final" and last == total)
    counted = counted or (shape.usage == "asked" and generation.continuous_usage)
    return _event(
        generation, _delta(shape, first, text), finish, usage(len(generation.prompt), last) if counted else None
    )


def _delta(shape: Shape, first: int, text: str) -> dict[str, Any]:
    if first < shape.reasoning_tokens or shape.channel == "reasoning_content":
        return {"content": None, "reasoning_content": text}
    if shape.channel == "reasoning":
        return {"content": None, "reasoning": text}
    if shape.channel == "both":
        return {"content": None, "reasoning": text, "reasoning_content": text}
    return {"content": text}


def _event(
    generation: Generation, delta: dict[str, Any], finish: str | None, counts: dict[str, int] | None = None
) -> bytes:
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    if generation.api == "chat":
        choice["delta"], kind = delta, "chat.completion.chunk"
    else:
        # A completions event has no channels; what is said of reasoning there stands beside text.
        extra = {k: v for k, v in delta.items() if k not in ("content", "role")}
        choice |= {"text": delta.get("content", "")} | extra
        kind = "text_completion"
    head = {"id": generation.rid, "object": kind, "created": 0, "model": generation.model}
    return event(head | {"choices": [choice], "usage": counts})


def _closing(shape: Shape, generation: Generation, times: list[float]) -> Iterator[Write]:
    end, total = times[-1], len(times)
    counts = usage(len(generation.prompt), total)
    choiceless = shape.usage == "choiceless" or (shape.usage == "asked" and generation.include_usage)
    data = b""
    if shape.usage == "empty":
        data += _event(generation, {"content": ""}, None, counts)
    elif choiceless:
        data += event({"id": generation.rid, "choices": [], "model": generation.model, "usage": counts})
    yield Write(end, data + (DONE if shape.terminator else b""), then="end")


def _failing(shape: Shape, times: list[float], sent: int) -> Iterator[Write]:
    when = times[sent - 1] if sent else times[0]
    if shape.failure == "error_event":
        yield Write(when, error_event("KV transfer failed for a simulated reason") + DONE, then="end")
    elif shape.failure == "end":
        yield Write(when, b"", then="end")
    else:
        yield Write(when, b"", then=shape.failure)


def _framed(shape: Shape, writes: Iterable[Write]) -> Iterator[Write]:
    if shape.framing == "glued":
        yield from _glued(shape.glue, writes)
        return
    before_ms = 0.0
    for write in writes:
        cuts = _cuts(shape, write.data)
        pieces = [write.data[a:b] for a, b in zip([0, *cuts], [*cuts, len(write.data)], strict=True)]
        # The piece that completes the event leaves on time; those before it leave earlier, but after the event before.
        early_ms = write.at_ms - shape.split_gap_ms * (len(pieces) - 1)
        for i, piece in enumerate(pieces[:-1]):
            yield Write(max(before_ms, early_ms + i * shape.split_gap_ms), piece)
        yield replace(write, data=pieces[-1])
        before_ms = write.at_ms


def _cuts(shape: Shape, data: bytes) -> list[int]:
    if len(data) < 8 or shape.framing not in ("split", "multibyte"):
        return []
    if shape.framing == "split":
        # In the field name, in the middle, and between the two line ends: the three places readers trip over.
        return [3, len(data) // 2, len(data) - 1]
    inside = next((i for i, byte in enumerate(data) if byte & 0xC0 == 0x80), 0)
    return [inside] if inside else []


def _glued(glue: int, writes: Iterable[Write]) -> Iterator[Write]:
    held: list[Write] = []
    for write in writes:
        held.append(write)
        if write.then or len(held) >= glue:
            tokens = tuple(n for w in held for n in w.tokens)
            yield Write(write.at_ms, b"".join(w.data for w in held), tokens, write.then)
            held = []
