from __future__ import annotations

import json
import select
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.app.engine.running import Running, engine, events, read_all

ONE_CONNECTION = "connection: close\r\n"


@pytest.fixture(scope="module")
def mock() -> Iterator[Running]:
    with engine("--role", "single", "--script", "builtin") as started:
        yield started


def stream(shape: str, tokens: int = 8, **more: Any) -> dict[str, Any]:
    options = {"include_usage": True}
    return {"prompt": "a b", "max_tokens": tokens, "stream": True, "stream_options": options, **more} | {
        "decode_ab_shape": shape
    }


def test_truth_holds_the_schedule_of_the_shape_and_the_times_of_sending(mock: Running) -> None:
    mock.post("/v1/completions", stream("slow_start", rid="slow"))
    (record,) = mock.get("/truth?rid=slow")["records"]
    gaps = [round((b - a) / 1e6) for a, b in pairwise(record["planned_ns"])]
    assert gaps == [50] * 5 + [10] * 2
    assert all(sent >= planned for planned, sent in zip(record["planned_ns"], record["sent_ns"], strict=True))
    assert (record["shape"], record["outcome"], record["tokens"]) == ("slow_start", "length", [1] * 8)


def test_server_with_a_known_difference_is_that_much_faster(mock: Running) -> None:
    for shape in ("plain", "faster_10"):
        mock.post("/v1/completions", stream(shape, 30, rid=shape))
    spans = {}
    for shape in ("plain", "faster_10"):
        (record,) = mock.get(f"/truth?rid={shape}")["records"]
        spans[shape] = record["planned_ns"][-1] - record["received_ns"]
    assert spans["plain"] / spans["faster_10"] == pytest.approx(1.1, rel=1e-3)


def test_ticking_streams_leave_on_one_grid(mock: Running) -> None:
    for rid in ("tick-1", "tick-2"):
        mock.post("/v1/completions", stream("tick", 3, rid=rid))
    planned = [mock.get(f"/truth?rid={rid}")["records"][0]["planned_ns"][0] for rid in ("tick-1", "tick-2")]
    off_grid_ns = (planned[1] - planned[0]) % 10_000_000
    assert min(off_grid_ns, 10_000_000 - off_grid_ns) < 1000


def test_reset_breaks_the_connection_after_the_tokens(mock: Running) -> None:
    with mock.open(stream("reset")) as connection, pytest.raises(ConnectionResetError):
        read_all(connection)


def test_close_leaves_the_body_unfinished(mock: Running) -> None:
    with mock.open(stream("close")) as connection:
        received = read_all(connection)
    assert received.count(b"data: ") == 5
    assert not received.endswith(b"0\r\n\r\n")


def test_end_without_finish_completes_the_body(mock: Running) -> None:
    with mock.open(stream("no_finish"), headers=ONE_CONNECTION) as connection:
        received = read_all(connection)
    assert received.endswith(b"0\r\n\r\n")
    assert b"[DONE]" not in received


@pytest.mark.parametrize(("shape", "heard"), [("hang", 5), ("silent", 0)])
def test_hang_keeps_the_connection_open_and_says_no_more(mock: Running, shape: str, heard: int) -> None:
    received = b""
    with mock.open(stream(shape)) as connection:
        while select.select([connection], [], [], 0.4)[0]:
            part = connection.recv(65536)
            assert part, "the connection was closed"
            received += part
    assert received.count(b"data: ") == heard


def test_status_is_answered_instead_of_a_stream(mock: Running) -> None:
    status, text = mock.post("/v1/completions", stream("status_503"))
    assert (status, "simulated reason" in text) == (503, True)


def test_unchunked_body_ends_with_the_connection(mock: Running) -> None:
    with mock.open(stream("unchunked")) as connection:
        received = read_all(connection)
    assert b"transfer-encoding" not in received
    assert received.endswith(b"data: [DONE]\n\n")


def test_shape_nobody_knows_is_400(mock: Running) -> None:
    assert mock.post("/v1/completions", stream("odd"))[0] == 400


def test_answer_in_one_piece_has_the_tokens_of_the_shape(mock: Running) -> None:
    body = {"prompt": "a", "max_tokens": 8, "decode_ab_shape": "short_stop"}
    answer = json.loads(mock.post("/v1/completions", body)[1])
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (5, "stop")


def test_cleared_truth_is_empty(mock: Running) -> None:
    mock.post("/v1/completions", stream("plain", 1))
    mock.post("/truth/clear", b"")
    assert mock.get("/truth")["records"] == []


def test_chat_goes_through_shapes_too(mock: Running) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "stream": True}
    shown = events(mock.post("/v1/chat/completions", body, {"x-decode-ab-shape": "reasoning_then_content"})[1])
    deltas = [e["choices"][0]["delta"] for e in shown[1:-1]]
    assert [bool(d.get("reasoning_content")) for d in deltas] == [True] * 5 + [False]
