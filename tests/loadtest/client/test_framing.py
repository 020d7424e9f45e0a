"""The end of a response is noticed in time, and framing comes off the same however the bytes were split."""

from __future__ import annotations

from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.client.framing import EndWatch, deframe

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*parts: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


STREAM = chunked(b"data: 0\r\n\r\n", b"data: 1\n\n", b"data: [DONE]\n\n")
FIXED = b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nsorry"
OPEN = b"HTTP/1.1 200 OK\r\n\r\nuntil the end"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % len(data) for c in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.integers(0, 500), max_size=12), st.sampled_from([STREAM, FIXED]))
def test_end_is_noticed_with_the_last_byte_however_split(cuts: list[int], response: bytes) -> None:
    watch = EndWatch()
    for number, piece in enumerate(parts := pieces(response, cuts), start=1):
        watch.feed(piece)
        assert watch.ended == (number == len(parts))
    assert watch.status == (200 if response is STREAM else 500)


@given(st.lists(st.integers(0, 500), max_size=12))
def test_body_and_its_growth_do_not_depend_on_the_split(cuts: list[int]) -> None:
    body = deframe(pieces(STREAM, cuts))
    assert (body.data, body.whole, body.status) == (b"data: 0\r\n\r\ndata: 1\n\ndata: [DONE]\n\n", True, 200)
    assert list(body.ends) == sorted(body.ends)
    assert body.ends[-1] == len(body.data)


def test_text_that_looks_like_the_end_is_found_afterwards() -> None:
    watch = EndWatch()
    read = HEAD + b"20\r\nevil\r\n0\r\n\r\n"
    watch.feed(read)
    assert watch.ended
    assert not deframe([read]).whole


def test_body_without_length_is_whole_when_the_connection_ends() -> None:
    watch = EndWatch()
    watch.feed(OPEN)
    assert (watch.ended, watch.framed, deframe([OPEN]).whole) == (False, False, True)


def test_cut_stream_is_not_whole() -> None:
    assert not deframe([STREAM[:-9]]).whole


def test_what_is_not_http_is_refused_while_reading_and_ends_the_body_after() -> None:
    with pytest.raises(httptools.HttpParserError):
        EndWatch().feed(b"nonsense\r\n\r\n")
    assert deframe([b"nonsense\r\n\r\n", b"x"]).data == b""


@pytest.mark.parametrize("head", ["Trailer: x\r\nTransfer-Encoding: chunked", "Transfer-Encoding:chunked"])
def test_unusual_heads_are_parsed_not_guessed(head: str) -> None:
    watch = EndWatch()
    watch.feed(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n1\r\na\r\n0\r\n\r\n".encode())
    assert watch.ended
