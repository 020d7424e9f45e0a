from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.engine.sim.generation import Api, Generation
from app.engine.sim.shapes import BUILTIN, Shape, read_script
from app.engine.sim.timeline import Write, timeline, token_times_ms
from app.errors import UsageError, VariantError
from tests.app.engine.running import events


def asked(tokens: int, api: Api = "chat", include_usage: bool = True) -> Generation:
    return Generation(api, "rid", "m", ("a", "b"), "00" * 32, tokens, include_usage=include_usage)


def writes(shape: Shape, tokens: int = 8, api: Api = "chat") -> list[Write]:
    return list(timeline(shape, asked(tokens, api)))


def sent(shape: Shape, tokens: int = 8, api: Api = "chat") -> list[Any]:
    return events(b"".join(w.data for w in writes(shape, tokens, api)).decode())


def deltas(shape: Shape) -> list[dict[str, Any]]:
    return [e["choices"][0]["delta"] for e in sent(shape) if e != "[DONE]" and e["choices"]]


def booked(shape: Shape, tokens: int = 8) -> list[int]:
    return [n for w in writes(shape, tokens) for n in w.tokens]


@pytest.mark.parametrize("name", [n for n, s in BUILTIN.items() if s.failure in ("none", "garbage")])
def test_every_sound_shape_books_exactly_the_tokens_it_sends_and_ends(name: str) -> None:
    shape = BUILTIN[name]
    assert sum(booked(shape)) == 8 - shape.short_by
    assert writes(shape)[-1].then == "end"


@pytest.mark.parametrize("name", BUILTIN)
def test_writes_of_every_shape_are_in_order_of_time(name: str) -> None:
    times = [w.at_ms for w in writes(BUILTIN[name])]
    assert all(a <= b for a, b in pairwise(times))


def test_plain_tokens_leave_at_even_times() -> None:
    assert token_times_ms(Shape(ttft_ms=50, itl_ms=10), 4) == [50, 60, 70, 80]


def test_stall_and_slow_start_delay_what_follows() -> None:
    shape = Shape(ttft_ms=10, itl_ms=10, stall_after=3, stall_ms=100, slow_start_tokens=1, slow_start_factor=3)
    assert token_times_ms(shape, 5) == [10, 40, 50, 160, 170]


def test_speed_divides_all_times() -> None:
    assert token_times_ms(Shape(ttft_ms=50, itl_ms=10, speed=2), 3) == [25, 30, 35]


def test_event_leaves_with_its_last_token() -> None:
    content = [w for w in writes(Shape(ttft_ms=50, itl_ms=10, tokens_per_event=(3, 1))) if w.tokens]
    assert [(w.at_ms, w.tokens) for w in content] == [(70, (3,)), (80, (1,)), (110, (3,)), (120, (1,))]


@pytest.mark.parametrize(
    ("opening", "first"),
    [("role", {"role": "assistant"}), ("empty", {"role": "assistant", "content": ""})]
    + [("null", {"role": "assistant", "content": None})],
)
def test_opening_event_carries_no_token(opening: str, first: dict[str, Any]) -> None:
    shape = Shape(opening=opening)
    assert deltas(shape)[0] == first
    assert booked(shape) == [1] * 8


@pytest.mark.parametrize("channel", ["reasoning_content", "reasoning"])
def test_reasoning_goes_to_its_channel(channel: str) -> None:
    assert all(d[channel] and d["content"] is None for d in deltas(Shape(channel=channel, opening="none")))


def test_reasoning_then_content_never_share_an_event() -> None:
    shape = Shape(reasoning_tokens=5, tokens_per_event=(4,), opening="none")
    assert booked(shape) == [4, 1, 3]
    assert ["reasoning_content" in d for d in deltas(shape)] == [True, True, False]


def usages(name: str) -> list[int]:
    return [i for i, e in enumerate(sent(BUILTIN[name])) if e != "[DONE]" and e.get("usage")]


def test_usage_stands_where_the_shape_says() -> None:
    # Event 0 is the chat's opening, 1 to 8 are tokens, 9 comes after them.
    assert (usages("usage_final"), usages("usage_empty"), usages("usage_none")) == ([8], [9], [])
    assert (usages("usage_each"), usages("usage_choiceless")) == (list(range(1, 9)), [9])
    assert sent(BUILTIN["usage_empty"])[9]["choices"][0]["delta"] == {"content": ""}
    assert sent(BUILTIN["usage_choiceless"])[9]["choices"] == []


def test_usage_counts_what_was_sent_when_the_answer_is_short() -> None:
    usage = sent(BUILTIN["short"])[-2]["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens"]) == (5, 2)


def test_comments_are_no_events() -> None:
    raw = b"".join(w.data for w in writes(BUILTIN["comments"]))
    assert raw.count(b": keep-alive\n\n") == 4
    assert len(sent(BUILTIN["comments"])) == len(sent(BUILTIN["plain"]))


@pytest.mark.parametrize("name", ["split", "glued", "multibyte", "crlf", "crlf_split"])
def test_framing_changes_no_byte_of_the_events(name: str) -> None:
    shape = BUILTIN[name]
    raw = b"".join(w.data for w in writes(shape)).replace(b"\r\n", b"\n")
    plain = b"".join(w.data for w in writes(Shape(text=shape.text)))
    assert strip_times(raw) == strip_times(plain)


def strip_times(raw: bytes) -> list[Any]:
    return [e if e == "[DONE]" else {**e, "created": 0} for e in events(raw.decode())]


def test_split_event_is_complete_at_its_time_and_begins_before() -> None:
    shape = Shape(framing="split", opening="none", ttft_ms=50)
    first = writes(shape)[:4]
    assert [w.at_ms for w in first] == [44, 46, 48, 50]
    assert [w.tokens for w in first] == [(), (), (), (1,)]


def test_multibyte_is_cut_inside_a_character() -> None:
    pieces = [w.data for w in writes(BUILTIN["multibyte"]) if w.data]
    with pytest.raises(UnicodeDecodeError):
        pieces[1].decode()


def test_glued_events_leave_with_the_last_of_them() -> None:
    glued = [w for w in writes(Shape(framing="glued", glue=4, opening="none", ttft_ms=50)) if w.tokens]
    assert [(w.at_ms, w.tokens) for w in glued] == [(80, (1, 1, 1, 1)), (120, (1, 1, 1, 1))]


@pytest.mark.parametrize("then", ["close", "reset", "hang"])
def test_failing_stream_stops_after_its_tokens_without_an_end(then: str) -> None:
    shape = BUILTIN[then]
    assert sum(booked(shape)) == 5
    assert writes(shape)[-1].then == then
    assert "[DONE]" not in sent(shape)


def test_error_event_stands_inside_the_stream() -> None:
    shown = sent(BUILTIN["error_event"])
    assert shown[-2]["error"]["code"] == 500
    assert shown[-1] == "[DONE]"


def test_garbage_is_no_json_and_the_stream_goes_on() -> None:
    raw = b"".join(w.data for w in writes(BUILTIN["garbage"]))
    with pytest.raises(json.JSONDecodeError):
        events(raw.decode())
    assert raw.endswith(b"data: [DONE]\n\n")


def test_stream_without_terminator_ends_properly_otherwise() -> None:
    shown = sent(BUILTIN["no_terminator"])
    assert shown[-1]["usage"]["completion_tokens"] == 8


def test_no_finish_ends_the_body_without_reason_usage_or_terminator() -> None:
    shown = sent(BUILTIN["no_finish"])
    assert all(e["choices"][0]["finish_reason"] is None and not e.get("usage") for e in shown)


def test_script_adds_shapes_and_orders_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(
        "base: {itl_ms: 5}\nsequence: [late, plain]\nshapes:\n  late: {like: error_event, fail_after: 20}\n"
    )
    script = read_script(str(path))
    assert [script.choose("", i)[0] for i in range(3)] == ["late", "plain", "late"]
    assert script.shapes["late"] == Shape(itl_ms=5, failure="error_event", fail_after=20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapes:\n  a: {itl: 5}\n", r":2: .*unknown key 'itl'"),
        ("shapes:\n  a: {framing: odd}\n", r":2: framing: must be one of event"),
        ("default: odd\n", ":1: default: must be one of"),
        ("base: {chunked: 1}\n", ":1: chunked: must be true or false"),
        ("base: {tokens_per_event: [0]}\n", "must be at least 1"),
    ],
)
def test_wrong_script_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(VariantError, match=message):
        read_script(str(path))


def test_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown shape 'odd'; known: close"):
        read_script("builtin").choose("odd", 0)
