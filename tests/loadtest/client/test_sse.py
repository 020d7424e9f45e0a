"""Events come out the same however their bytes were split, and each belongs to the read that completed it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.client.sse import Event, parse_stream

BODY = 'data: {"a": "é日🙂"}\n\n: comment\n\ndata: 1\ndata: 2\n\nevent: error\ndata: x\n\ndata:no blank\n\n'.encode()
DATA = ['{"a": "é日🙂"}'.encode(), b"1\n2", b"x", b"no blank"]


def reads(body: bytes, cuts: list[int]) -> list[int]:
    """Body length after each read when it is cut at the given places."""
    return sorted({min(c, len(body)) for c in cuts} - {0} | {len(body)})


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_events_are_found_with_every_line_end(newline: str) -> None:
    body = BODY.replace(b"\n", newline.encode())
    assert [e.data for e in parse_stream(body, [len(body)]).events] == DATA


@given(st.lists(st.integers(1, len(BODY)), max_size=20), st.sampled_from([b"\n", b"\r\n"]))
def test_any_splitting_gives_the_same_events_each_in_the_read_that_completed_it(
    cuts: list[int], newline: bytes
) -> None:
    body = BODY.replace(b"\n", newline)
    ends = reads(body, cuts)
    events = parse_stream(body, ends).events
    assert [e.data for e in events] == DATA
    for event in events:
        prefix = parse_stream(body[: ends[event.read]], ends).events
        before = parse_stream(body[: ends[event.read - 1]], ends).events if event.read else ()
        assert event in prefix
        assert event not in before


def test_named_event_keeps_its_name() -> None:
    assert Event(b"x", 0, b"error") in parse_stream(BODY, [len(BODY)]).events


def test_unfinished_event_is_left_as_the_tail() -> None:
    stream = parse_stream(b"data: 1\n\ndata: 2\n", [18])
    assert ([e.data for e in stream.events], stream.tail) == ([b"1"], b"data: 2\n")


def test_byte_order_mark_and_extra_blank_lines_are_skipped() -> None:
    body = b"\xef\xbb\xbfdata: 1\n\n\n\ndata: 2\n\n"
    assert [e.data for e in parse_stream(body, [len(body)]).events] == [b"1", b"2"]


def test_part_of_a_body_finds_the_reads_of_the_whole() -> None:
    body = b"".join(b"data: %d\n\n" % i for i in range(10))
    ends = list(range(9, 91, 9))
    tail = parse_stream(body[45:], [e - 45 for e in ends[5:]], 5).events
    assert tail == parse_stream(body, ends).events[5:]


def test_arbitrary_bytes_never_raise() -> None:
    rng = random.Random(1)
    for _ in range(200):
        body = bytes(rng.choice(b"data: \r\n{}x") for _ in range(60))
        events = parse_stream(body, [len(body)]).events
        assert all(a.read <= b.read for a, b in pairwise(events))
