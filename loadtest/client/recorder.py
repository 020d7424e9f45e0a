"""Keeps every exchange as it came off the wire and turns all of them into rows when the load is over."""

from __future__ import annotations

import os
import re
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from loadtest.client.connection import Exchange
from loadtest.client.framing import deframe
from loadtest.client.key import without_key
from loadtest.client.prompts import Prompt
from loadtest.client.reply import Reply, read_reply
from loadtest.client.rows import Row
from loadtest.client.slots import Lease
from loadtest.client.spool import Kept, Spool
from loadtest.client.sse import Stream, parse_stream

GLANCE_READS = 5
_EXCHANGE = ("slot", "sent_ns", "ended_ns", "status", "error_kind", "error")
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
    """Keeps what was sent in a spool below `folder`, some 16 bytes a request in memory; `rows` parses it afterwards."""

    def __init__(self, folder: Path, worker: int = 0) -> None:
        self._worker = worker
        self._spool = Spool(folder)
        self._sent_ns = array("q")

    def __len__(self) -> int:
        return len(self._sent_ns)

    def add(self, sent: Sent) -> None:
        """Keeps a finished request."""
        lease, exchange = sent.lease, sent.exchange
        facts = {name: getattr(exchange, name) for name in _EXCHANGE}
        facts |= {"lease": [getattr(lease, name) for name in Lease.__slots__], "prompt": sent.prompt.sha256}
        facts |= {"requested": sent.requested_tokens, "scheduled_ns": sent.scheduled_ns}
        self._sent_ns.append(exchange.sent_ns)
        self._spool.append(facts, exchange.reads, exchange.stamps)

    def rows(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[Row]:
        """A row for every request, in sending order; sleep(0) lets others run between requests.

        RecordsError when the disk could not keep one.
        """
        self._spool.check()
        for index in sorted(range(len(self)), key=self._sent_ns.__getitem__):
            yield row_of(_sent(self._spool.read(index)), self._worker)
            sleep(0)


def _sent(kept: Kept) -> Sent:
    facts = kept.facts
    exchange = Exchange(facts["slot"], b"")
    for name in _EXCHANGE:
        setattr(exchange, name, facts[name])
    exchange.reads, exchange.stamps = list(kept.reads), kept.stamps
    # Only the digest of a prompt is recorded, so only that is kept.
    prompt = Prompt("", 0, facts["requested"], facts["prompt"])
    return Sent(Lease(*facts["lease"]), prompt, facts["requested"], facts["scheduled_ns"], exchange)


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
        error=without_key(error, os.environ),
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
