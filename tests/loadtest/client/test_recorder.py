"""What kept a request from its promise, in the order in which faults count."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.client.connection import Exchange
from loadtest.client.prompts import Prompt
from loadtest.client.recorder import Recorder, Sent, fault, glance, reply_of, row_of
from loadtest.client.reply import Reply
from loadtest.client.slots import Lease

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GOOD = Reply(reads=(0, 1), tokens=(1, 1), usage_tokens=2, finish_reason="length")


def exchange(*events: Any, status: int = 200, ended: bool = True) -> Exchange:
    """An exchange whose every event came in a read of its own, a millisecond apart."""
    one = Exchange(0, b"")
    texts = [e if isinstance(e, str) else json.dumps(e) for e in events]
    chunks = [f"data: {t}\n\n".encode() for t in texts]
    one.reads = [HEAD, *(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks), *([b"0\r\n\r\n"] if ended else [])]
    one.sent_ns, one.status = 5, status
    one.stamps.extend(10 + i * 1_000_000 for i in range(len(one.reads)))
    one.ended_ns = one.stamps[-1]
    return one


def stream(tokens: int) -> list[Any]:
    parts = [
        {"choices": [{"text": f" {i}", "finish_reason": "length" if i == tokens else None}],
         "usage": {"completion_tokens": i, "prompt_tokens": 3}}
        for i in range(1, tokens + 1)
    ]  # fmt: skip
    return [*parts, "[DONE]"]


def sent(one: Exchange, tokens: int, sequence: int = 0) -> Sent:
    return Sent(Lease(4, 2, sequence, False), Prompt("a b c", 3, tokens, "digest"), tokens, 0, one)


@pytest.mark.parametrize(
    ("status", "change", "kind"),
    [
        (200, {}, ""),
        (503, {}, "http_status"),
        (200, {"error_kind": "stream_error"}, "stream_error"),
        (200, {"finish_reason": "stop"}, "finish_reason"),
        (200, {"usage_tokens": 1}, "short_output"),
        (200, {"usage_tokens": 3}, "long_output"),
        (200, {"tokens": (1,)}, "tokens_disagree"),
    ],
)
def test_each_broken_promise_has_its_kind(status: int, change: dict[str, Any], kind: str) -> None:
    assert fault(exchange(status=status), dataclasses.replace(GOOD, **change), 2)[0] == kind


def test_fault_of_the_connection_comes_first() -> None:
    one = exchange(status=503)
    one.fail("disconnected", "gone")
    one.fail("stalled", "later")
    assert fault(one, GOOD, 2) == ("disconnected", "gone")


def test_row_holds_every_arrival_and_address() -> None:
    row = row_of(sent(exchange(*stream(3)), 3), worker=1)
    assert (row.user, row.concurrency, row.worker, row.prompt_sha256, row.error_kind) == (2, 4, 1, "digest", "")
    assert list(row.arrivals_ns) == [1_000_010, 2_000_010, 3_000_010]
    assert (row.event_tokens, row.usage_tokens, row.prompt_tokens, row.cached_tokens) == ((1, 1, 1), 3, 3, -1)
    assert row.scheduled_ns == row.sent_ns == 5


def test_response_that_looked_ended_but_was_not_is_marked() -> None:
    assert row_of(sent(exchange(*stream(3), ended=False), 3)).error_kind == "bad_framing"


@pytest.mark.parametrize("tokens", [1, 5, 12, 100])
def test_glance_sees_the_same_ends_as_the_whole_reading(tokens: int) -> None:
    one = exchange(*stream(tokens))
    whole, quick = reply_of(one), glance(one)
    assert (quick.reads[0], quick.reads[-1]) == (whole.reads[0], whole.reads[-1])
    assert (quick.usage_tokens, quick.finish_reason, quick.error_kind) == (tokens, "length", "")


def test_rows_come_in_sending_order(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for sequence, at in ((1, 20), (0, 10)):
        one = exchange(*stream(2))
        one.sent_ns = at
        recorder.add(sent(one, 2, sequence))
    assert [row.sequence for row in recorder.rows()] == [0, 1]
    assert len(recorder) == 2


@pytest.mark.parametrize("broken", [False, True])
def test_a_kept_request_gives_the_row_it_would_have_given_at_once(tmp_path: Path, broken: bool) -> None:
    one = exchange(*stream(5), ended=not broken)
    if broken:
        one.fail("disconnected", "the connection ended inside the response")
    recorder = Recorder(tmp_path, worker=3)
    recorder.add(sent(one, 5, sequence=7))
    assert list(recorder.rows()) == [row_of(sent(one, 5, sequence=7), worker=3)]
