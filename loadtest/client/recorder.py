"""Keeps every exchange as it came off the wire and turns all of them into rows when the load is over."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from loadtest.client.framing import deframe
from loadtest.client.prompts import Prompt
from loadtest.client.reply import Reply, read_reply
from loadtest.client.rows import Row
from loadtest.client.slots import Lease
from loadtest.client.sse import Stream, parse_stream
from loadtest.client.streams import Exchange

GLANCE_READS = 5
_CHUNK_HEAD = re.compile(rb"[0-9a-fA-F]+\r\n")
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request with what was asked and what came back, unparsed."""

    lease: Lease
    prompt: Prompt
    requested_tokens: int
    scheduled_ns: int
    exchange: Exchange


class Recorder:
    """Holds what was sent, some 400 bytes a token; `rows` parses it when the load is over."""

    def __init__(self, worker: int = 0) -> None:
        self._worker = worker
        self._sent: list[Sent] = []

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, sent: Sent) -> None:
        """Keeps a finished request."""
        self._sent.append(sent)

    def rows(self, sleep: Callable[[float], None] = time.sleep) -> list[Row]:
        """A row for every request, in sending order; sleep(0) lets others run between requests."""
        rows = []
        for sent in self._sent:
            rows.append(row_of(sent, self._worker))
            sleep(0)
        return sorted(rows, key=lambda r: (r.sent_ns, r.user))


def row_of(sent: Sent, worker: int = 0) -> Row:
    """The row of one request: its reply read from the recorded bytes, and whether it kept its promise."""
    exchange = sent.exchange
    reply = reply_of(exchange)
    kind, error = fault(exchange, reply, sent.requested_tokens)
    return Row(
        user=sent.lease.slot,
        concurrency=sent.lease.concurrency,
        sequence=sent.lease.sequence,
        worker=worker,
        prompt_sha256=sent.prompt.sha256,
        scheduled_ns=sent.scheduled_ns or exchange.sent_ns,
        sent_ns=exchange.sent_ns,
        ended_ns=exchange.ended_ns,
        arrivals_ns=[exchange.stamps[r] for r in reply.reads],
        event_tokens=reply.tokens,
        token_source=reply.source,
        silent_tokens=reply.silent_tokens,
        glued=reply.glued,
        requested_tokens=sent.requested_tokens,
        usage_tokens=_or_unknown(reply.usage_tokens),
        prompt_tokens=_or_unknown(reply.prompt_tokens),
        cached_tokens=_or_unknown(reply.cached_tokens),
        finish_reason=reply.finish_reason,
        status=exchange.status,
        error_kind=kind,
        error=error,
    )


def reply_of(exchange: Exchange) -> Reply:
    """The reply in an exchange's reads; empty unless the server said 200."""
    if exchange.status != 200:
        return Reply()
    body = deframe(exchange.reads)
    reply = read_reply(parse_stream(body.data, body.ends))
    if not body.whole and not exchange.error_kind:
        return replace(reply, error_kind="bad_framing", error="the response ended before its last chunk")
    return reply


def glance(exchange: Exchange) -> Reply:
    """The reply read from the two ends of the response only: cheap enough to do while others are being measured.

    Its reads are the first content event and those of the last few; its tokens are not the whole output.
    """
    reads = exchange.reads
    cut = next((i for i in range(len(reads) - GLANCE_READS, GLANCE_READS, -1) if _CHUNK_HEAD.match(reads[i])), None)
    if exchange.status != 200 or cut is None:
        return reply_of(exchange)
    head, tail = deframe(reads[:GLANCE_READS]), deframe([_CHUNKED, *reads[cut:]])
    first = parse_stream(head.data, head.ends)
    last = parse_stream(tail.data, tail.ends, cut - 1)
    return read_reply(Stream((*first.events, *last.events), last.tail))


def fault(exchange: Exchange, reply: Reply, requested: int) -> tuple[str, str]:
    """What kept a request from its promise, by kind and in words; empty when nothing did.

    A fault of the connection comes before one of the stream, and that before one of its length. Of an exchange that
    the driver itself cut nothing else is said.
    """
    if exchange.error_kind:
        return exchange.error_kind, exchange.error
    if exchange.status != 200:
        return "http_status", f"HTTP {exchange.status}: {deframe(exchange.reads).data[:120]!r}"
    if reply.error_kind:
        return reply.error_kind, reply.error
    if reply.finish_reason != "length":
        return "finish_reason", f"finish_reason {reply.finish_reason!r}, not 'length'"
    if reply.usage_tokens != requested:
        kind = "short_output" if (reply.usage_tokens or 0) < requested else "long_output"
        return kind, f"{reply.usage_tokens} tokens for {requested} asked"
    if (counted := sum(reply.tokens)) != requested:
        return "tokens_disagree", f"events carry {counted} tokens, usage says {reply.usage_tokens}"
    return "", ""


def _or_unknown(count: int | None) -> int:
    return -1 if count is None else count
