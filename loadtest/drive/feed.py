"""Feeds Locust's own table, in its own units; the table is decoration, the rows are the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadtest.client.recorder import Sent, fault, glance


@dataclass(frozen=True, slots=True)
class Look:
    """A finished request as the live figures need it, in wall milliseconds; NaN where there is nothing to time.

    first and last: indices of the reads with the first and the last visible text; -1 without output.
    """

    error: str
    first: int
    last: int
    ttft_ms: float
    tpot_ms: float
    e2e_ms: float


def look_at(sent: Sent) -> Look:
    """A quick look at the two ends of a response."""
    exchange = sent.exchange
    reply = glance(exchange)
    kind, text = fault(exchange, reply, sent.requested_tokens)
    error = "" if kind in ("", "tokens_disagree") else f"{kind}: {text}"  # a glance does not see every event
    if not reply.reads:
        return Look(error, -1, -1, float("nan"), float("nan"), (exchange.ended_ns - exchange.sent_ns) / 1e6)
    first, last = reply.reads[0], reply.reads[-1]
    t1, tn = exchange.stamps[first], exchange.stamps[last]
    rest = sent.requested_tokens - reply.tokens[0]
    tpot_ms = (tn - t1) / 1e6 / rest if rest > 0 else float("nan")
    return Look(error, first, last, (t1 - exchange.sent_ns) / 1e6, tpot_ms, (tn - exchange.sent_ns) / 1e6)


def feed_locust(environment: Any, sent: Sent, look: Look) -> None:
    """One entry a request in Locust's table, in milliseconds to the last token; faults as failures.

    TTFT and TPOT go to rows of their own and not into the total, which counts requests.
    """
    level = f"C={sent.lease.concurrency}"
    environment.events.request.fire(
        request_type="stream",
        name=f"E2E {level}",
        response_time=look.e2e_ms,
        response_length=sent.exchange.size,
        exception=RuntimeError(look.error) if look.error else None,
        context={},
    )
    if not look.error:
        for name, value_ms in (("TTFT", look.ttft_ms), ("TPOT", look.tpot_ms)):
            if value_ms == value_ms:
                environment.stats.get(f"{name} {level}", "part").log(value_ms, 0)
