"""Checks the client itself against every shape of stream the clocked mock can play, before a campaign trusts it."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.client.carrier import PATHS, request_body
from loadtest.client.connection import Exchange
from loadtest.client.prompts import Prompt, PromptList
from loadtest.client.recorder import Sent, row_of
from loadtest.client.rows import Row
from loadtest.client.slots import Lease
from loadtest.client.streams import StreamClient, http_request
from loadtest.order import Api, StartOrder

# What each shape must be taken for; "" is a request that kept its promise.
SHAPES: Mapping[str, str] = {
    **dict.fromkeys(("plain", "tick", "role_first", "empty_first", "null_first"), ""),
    **dict.fromkeys(("reasoning_content", "reasoning", "reasoning_both", "reasoning_then_content"), ""),
    **dict.fromkeys(("four_tokens", "mixed_tokens", "four_tokens_counted"), ""),
    **dict.fromkeys(("usage_final", "usage_empty", "usage_choiceless", "usage_each"), ""),
    **dict.fromkeys(("comments", "split", "glued", "multibyte", "crlf", "crlf_split", "unchunked"), ""),
    **dict.fromkeys(("stall", "slow_start", "slower_10", "faster_10"), ""),
    **dict.fromkeys(("status_500", "status_503", "status_400"), "http_status"),
    **dict.fromkeys(("error_first", "error_event"), "stream_error"),
    **dict.fromkeys(("close", "reset"), "disconnected"),
    **dict.fromkeys(("no_finish", "no_terminator"), "no_terminator"),
    **dict.fromkeys(("hang", "silent"), "stalled"),
    "usage_none": "no_usage",
    "garbage": "bad_event",
    "short": "short_output",
    "short_stop": "finish_reason",
}
OUTPUT_TOKENS = 24
STALL_S = 2.0
# Not a bound on accuracy, which is measured elsewhere: only a stamp of another event is that far off.
MAX_LATE_MS = 500.0


@dataclass(frozen=True, slots=True)
class Check:
    """One shape on one endpoint: what it must be taken for, what it was taken for, and what else is wrong."""

    shape: str
    api: Api
    expected: str
    found: str
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the client told the truth about it."""
        return self.expected == self.found and not self.faults


def check_client(
    mock_url: str, shapes: Sequence[str] = tuple(SHAPES), apis: Sequence[Api] = ("completions", "chat")
) -> list[Check]:
    """Plays every shape on every endpoint at once, through the client, and compares with the mock's own record.

    mock_url: a mock that plays shapes by name (prompt's first word) and keeps the truth.
    """
    client = StreamClient(mock_url, stall_s=STALL_S)
    client.start()
    try:
        sent = [_send(client, mock_url, slot, shape, api) for slot, (api, shape) in enumerate(_pairs(apis, shapes))]
        for one in sent:
            one.exchange.done.wait()
    finally:
        client.close()
    truth = {t["prompt_sha256"]: t for t in _truth(mock_url)}
    rows = [row_of(one) for one in sent]
    return [
        Check(shape, api, SHAPES[shape], row.error_kind, tuple(_faults(row, truth.get(row.prompt_sha256))))
        for (api, shape), row in zip(_pairs(apis, shapes), rows, strict=True)
    ]


def _pairs(apis: Sequence[Api], shapes: Sequence[str]) -> list[tuple[Api, str]]:
    return [(api, shape) for api in apis for shape in shapes]


def _send(client: StreamClient, url: str, slot: int, shape: str, api: Api) -> Sent:
    order = StartOrder(0, 0, "mock", "", (1,), f"conformance/{api}", url, Path(), api=api)
    text = f"@shape:{shape} " + PromptList.of(order).prompt(1, slot, 0).text
    words = text.split()
    prompt = Prompt(text, len(words), OUTPUT_TOKENS, _digest(api, words))
    body = json.dumps(request_body(order, text, OUTPUT_TOKENS)).encode()
    exchange = Exchange(slot, http_request(url, PATHS[api], body))
    client.begin(exchange)
    return Sent(Lease(1, slot, 0, False), prompt, OUTPUT_TOKENS, 0, exchange)


def _digest(api: Api, words: list[str]) -> str:
    template = ["<template>"] * 4 if api == "chat" else []
    return hashlib.sha256(" ".join([*words, *template]).encode()).hexdigest()


def _faults(row: Row, truth: Mapping[str, Any] | None) -> list[str]:
    if truth is None:
        return ["the mock has no record of it"]
    left, tokens = truth["sent_ns"], truth["tokens"]
    if row.error_kind in ("http_status", "stalled", "disconnected"):
        return []
    if len(left) != len(row.arrivals_ns):
        return [f"{len(row.arrivals_ns)} content events seen, {len(left)} sent"]
    late = [(a - s) / 1e6 for a, s in zip(row.arrivals_ns, left, strict=True)]
    faults = []
    if late and min(late) < 0:
        faults.append(f"an event stamped {told_ms(-min(late))} before it was sent")
    if late and max(late) > MAX_LATE_MS:
        faults.append(f"an event stamped {told_ms(max(late))} after it was sent")
    if not row.error_kind and sum(row.event_tokens) != sum(tokens):
        faults.append(f"{sum(row.event_tokens)} tokens counted, {sum(tokens)} sent")
    if row.token_source == "usage" and not row.error_kind and list(row.event_tokens) != tokens:
        faults.append(f"tokens by event {list(row.event_tokens)}, sent {tokens}")
    return faults


def told_ms(ms: float) -> str:
    """Milliseconds for people; in microseconds where they would read 0."""
    return f"{ms:.1f} ms" if ms >= 1 else f"{1000 * ms:.3g} us"


def _truth(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/truth", timeout=10) as answer:
        records: list[dict[str, Any]] = json.load(answer)["records"]
        return records
