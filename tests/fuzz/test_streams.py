"""What comes over the wire while measuring: HTTP framing, server-sent events, completions, counters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from loadtest.client.connection import Exchange
from loadtest.client.framing import EndWatch, deframe
from loadtest.client.prompts import Prompt
from loadtest.client.recorder import Sent, glance, row_of
from loadtest.client.rows import Row, rows_of, table_of
from loadtest.client.slots import Lease
from loadtest.client.sse import parse_stream
from loadtest.measure.server import read_metrics
from tests.fuzz.trying import damaged, torn, tries

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = {"choices": [{"text": " x", "finish_reason": "length"}], "usage": {"completion_tokens": 1, "prompt_tokens": 3}}
CHAT = {"choices": [{"delta": {"content": "x", "tool_calls": [{"function": {"arguments": "1"}}]}}], "error": None}
DEEP = "[" * 100_000
METRICS = b'sglang:token_usage{mode="decode",cache_source="total"} 0.5 1700000000\nsglang:num_queue_reqs 1e3\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(texts: Sequence[str]) -> bytes:
    parts = [chunk(f"data: {t}\n\n".encode("utf-8", "surrogatepass")) for t in (*texts, "[DONE]")]
    return HEAD + b"".join(parts) + b"0\r\n\r\n"


GOOD = whole([json.dumps(EVENT), json.dumps(CHAT)])


def exchange_of(data: bytes, cuts: Sequence[int]) -> Exchange:
    one = Exchange(0, b"")
    bounds = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    one.reads = [data[a:b] for a, b in pairwise(bounds)]
    one.stamps.extend(10 + i for i in range(len(one.reads)))
    one.sent_ns, one.ended_ns, one.status = 5, 10 + len(one.reads), 200
    return one


def recorded(data: bytes, cuts: Sequence[int]) -> Row:
    """The row of a response, which fits into the table of a start."""
    one = exchange_of(data, cuts)
    glance(one)
    row = row_of(Sent(Lease(1, 0, 0, True), Prompt("p", 3, 1, "0" * 64), 1, 0, one))
    assert rows_of(table_of([row])).user.tolist() == [0]
    return row


@tries(120)
@given(values=st.lists(damaged(EVENT) | damaged(CHAT), max_size=3), cuts=st.lists(st.integers(0, 2000), max_size=4))
@example(values=[EVENT | {"usage": {"completion_tokens": 10**400}}], cuts=[])
@example(values=[EVENT | {"usage": {"completion_tokens": 2**40, "prompt_tokens": True}}], cuts=[])
@example(values=[{"choices": [{"text": "x", "finish_reason": "\ud800"}]}], cuts=[])
@example(values=[{"error": {"message": "\ud800\x1b[2J"}}], cuts=[])
def test_any_completion_becomes_a_row_that_can_be_kept(values: list[Any], cuts: list[int]) -> None:
    row = recorded(whole([json.dumps(v) for v in values]), cuts)
    assert row.error.isprintable()


@tries(150)
@given(data=torn(GOOD), cuts=st.lists(st.integers(0, len(GOOD)), max_size=6))
def test_torn_response_becomes_a_row_that_can_be_kept(data: bytes, cuts: list[int]) -> None:
    recorded(data, cuts)


@tries(60)
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=4))
def test_any_bytes_become_a_row_that_can_be_kept(data: bytes, cuts: list[int]) -> None:
    assert recorded(HEAD + data, cuts).error_kind


def test_deeply_nested_event_is_a_fault_of_its_row() -> None:
    assert recorded(whole([DEEP]), []).error_kind == "bad_event"


@tries(200)
@given(data=torn(GOOD) | st.binary(max_size=80), cuts=st.lists(st.integers(0, len(GOOD)), max_size=6))
def test_watch_and_parser_agree_on_the_end_or_refuse(data: bytes, cuts: list[int]) -> None:
    one, watch = exchange_of(data, cuts), EndWatch()
    with contextlib.suppress(httptools.HttpParserError):
        for read in one.reads:
            watch.feed(read)
    body = deframe(one.reads)
    assert len(body.ends) == len(one.reads)
    assert list(body.ends) == sorted(body.ends)


@tries(200)
@given(body=st.lists(st.sampled_from([b"data: x", b"\n", b"\r", b"event: e", b":", b"\0", b"\xff"]), max_size=30))
def test_events_and_tail_hold_no_more_than_the_body(body: list[bytes]) -> None:
    data = b"".join(body)
    stream = parse_stream(data, [len(data)])
    assert sum(len(e.data) for e in stream.events) + len(stream.tail) <= len(data)


@tries(150)
@given(data=torn(METRICS) | st.binary(max_size=60).map(lambda b: b"sglang:token_usage " + b))
@example(data=b"sglang:token_usage 1.2.3\nsglang:num_queue_reqs 2\n")
def test_any_page_of_counters_is_read(data: bytes) -> None:
    assert all(isinstance(v, float) for v in read_metrics(data).values())
