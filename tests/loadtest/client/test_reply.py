"""What a stream said is read from it whole: tokens, usage, end, and every way of going wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.client.reply import Reply, has_text, read_reply
from loadtest.client.sse import parse_stream


def reply(*events: Any, done: bool = True) -> Reply:
    parts = [e if isinstance(e, str) else json.dumps(e) for e in events] + (["[DONE]"] if done else [])
    body = b""
    ends = []
    for part in parts:
        body += f"data: {part}\n\n".encode()
        ends.append(len(body))
    return read_reply(parse_stream(body, ends))


def text(value: str | None, completion: int | None = None, finish: str | None = None) -> dict[str, Any]:
    usage = {} if completion is None else {"usage": {"prompt_tokens": 7, "completion_tokens": completion}}
    return {"choices": [{"index": 0, "text": value, "finish_reason": finish}]} | usage


def test_per_event_usage_gives_each_event_its_tokens() -> None:
    said = reply(text("a", 3), text("b", 4), text("c", 6, "length"))
    assert (said.tokens, said.source, said.usage_tokens, said.finish_reason) == ((3, 1, 2), "usage", 6, "length")
    assert said.error_kind == ""


def test_tokens_of_events_without_text_fall_to_the_next_that_has_some() -> None:
    said = reply(text("a", 1), text("", 2), text("b", 3), text("", 4, "length"))
    assert (said.reads, said.tokens, said.silent_tokens) == ((0, 2), (1, 3), 1)


def test_final_usage_alone_is_spread_over_the_events() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 9}}
    said = reply(text("a"), text("b", None, "length"), usage)
    assert (said.tokens, said.source) == ((4, 5), "spread")


def test_events_count_as_tokens_when_usage_agrees() -> None:
    said = reply(text("a"), text("b", None, "length"), {"choices": [], "usage": {"completion_tokens": 2}})
    assert (said.tokens, said.source) == ((1, 1), "events")


def test_usage_without_choices_or_text_is_read() -> None:
    assert reply(text("a"), {"choices": [], "usage": {"completion_tokens": 1}}).usage_tokens == 1
    assert reply(text("a"), text("", 1, "length")).usage_tokens == 1


@pytest.mark.parametrize(
    ("events", "done", "kind"),
    [
        ([text("a")], True, "no_usage"),
        ([text("a", 1)], False, "no_terminator"),
        ([text("a", 1), {"error": {"message": "out of memory"}}], True, "stream_error"),
        ([text("a", 1), {"object": "error", "message": "gone"}], True, "stream_error"),
        (["{not json"], True, "bad_event"),
        (["3"], True, "bad_event"),
        ([{"choices": ["x"]}], True, "bad_event"),
    ],
)
def test_every_fault_of_a_stream_has_its_kind(events: list[Any], done: bool, kind: str) -> None:
    assert reply(*events, done=done).error_kind == kind


def test_first_fault_stands() -> None:
    assert reply("{", {"error": "later"}, done=False).error_kind == "bad_event"


@pytest.mark.parametrize(
    "usage", [{"completion_tokens": "many"}, {"completion_tokens": -1}, {"completion_tokens": None}]
)
def test_senseless_usage_counts_as_none(usage: dict[str, Any]) -> None:
    assert reply(text("a") | {"usage": usage}).usage_tokens is None


@pytest.mark.parametrize(
    ("choice", "visible"),
    [
        ({"text": "x"}, True),
        ({"text": ""}, False),
        ({"delta": {"role": "assistant"}}, False),
        ({"delta": {"role": "assistant", "content": ""}}, False),
        ({"delta": {"content": None}}, False),
        ({"delta": {"content": " "}}, True),
        ({"delta": {"reasoning_content": "x"}}, True),
        ({"delta": {"reasoning": "x", "reasoning_content": "x"}}, True),
        ({"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}}, True),
        ({"delta": {"tool_calls": [{"function": {"name": "f"}}]}}, False),
        ({"text": "", "reasoning_content": "x"}, True),
    ],
)
def test_only_visible_text_is_output(choice: dict[str, Any], visible: bool) -> None:
    assert has_text(choice) is visible


def test_cached_prompt_tokens_are_reported() -> None:
    usage = {"completion_tokens": 1, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    said = reply(text("a") | {"usage": usage})
    assert (said.prompt_tokens, said.cached_tokens) == (9, 4)


def test_events_that_share_a_read_are_counted() -> None:
    body = b"".join(b"data: " + json.dumps(text("a", i)).encode() + b"\n\n" for i in (1, 2, 3))
    assert read_reply(parse_stream(body, [len(body)])).glued == 2
