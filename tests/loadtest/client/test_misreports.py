"""Ten ways in which other tools misreported, each as its whole kind: what this driver says in the same place.

The numbers are those of the table in docs/load.md; each test plays the cause through the clocked mock or the rows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.cells import Cell
from loadtest.client.carrier import PATHS, request_body
from loadtest.client.conformance import STALL_S
from loadtest.client.connection import Exchange
from loadtest.client.prompts import Prompt, PromptList
from loadtest.client.recorder import Sent, row_of
from loadtest.client.rows import Row
from loadtest.client.slots import Lease, first_output_tokens
from loadtest.client.streams import StreamClient, http_request
from loadtest.order import Api, StartOrder
from loadtest.plan import Lengths

TOKENS = 24


@pytest.fixture
def play(mock_url: str) -> Iterator[Callable[..., Row]]:
    """Plays one shape through the client and gives its row."""
    client = StreamClient(mock_url, stall_s=STALL_S)
    client.start()
    count = iter(range(1000))

    def one(shape: str, api: Api = "completions", tokens: int = TOKENS) -> Row:
        slot = next(count)
        order = StartOrder(0, 0, "v", "", (1,), f"misreports/{shape}/{api}", mock_url, Path(), api=api)
        text = f"@shape:{shape} {PromptList.of(order).prompt(1, slot, 0).text}"
        words = [*text.split(), *(["<template>"] * 4 if api == "chat" else [])]
        digest = hashlib.sha256(" ".join(words).encode()).hexdigest()
        body = json.dumps(request_body(order, text, tokens)).encode()
        exchange = Exchange(slot, http_request(mock_url, PATHS[api], body))
        client.begin(exchange)
        assert exchange.done.wait(timeout=20)
        return row_of(Sent(Lease(1, slot, 0, False), Prompt(text, len(words), tokens, digest), tokens, 0, exchange))

    yield one
    client.close()


@pytest.fixture
def truth_of(mock_url: str) -> Callable[[Row], dict[str, Any]]:
    """The mock's own record of a row's request."""

    def find(row: Row) -> dict[str, Any]:
        with urllib.request.urlopen(f"{mock_url}/truth") as answer:
            records: list[dict[str, Any]] = json.load(answer)["records"]
        return next(r for r in records if r["prompt_sha256"] == row.prompt_sha256)

    return find


@pytest.mark.parametrize("shape", ["four_tokens", "mixed_tokens", "four_tokens_counted"])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_1_an_event_is_not_taken_for_a_token(
    play: Callable[..., Row], truth_of: Callable[[Row], dict[str, Any]], shape: str, api: Api
) -> None:
    row = play(shape, api)
    assert len(row.event_tokens) < TOKENS == sum(row.event_tokens) == row.usage_tokens
    assert list(row.event_tokens) == truth_of(row)["tokens"]


def test_1_a_bundled_first_event_does_not_speed_the_user_up(
    loop: Callable[..., list[Row]], cell: Callable[..., Cell]
) -> None:
    bundled = [dataclasses.replace(r, event_tokens=[9] + [1] * (len(r.arrivals_ns) - 1)) for r in loop()]
    assert cell(bundled).tpot_p50_ms == pytest.approx(10)
    assert np.isnan(cell([dataclasses.replace(r, event_tokens=[2] * len(r.arrivals_ns)) for r in loop()]).itl_p50_ms)


@pytest.mark.parametrize("shape", ["role_first", "empty_first", "null_first"])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_2_an_opening_event_without_text_does_not_stop_the_ttft_clock(
    play: Callable[..., Row], truth_of: Callable[[Row], dict[str, Any]], shape: str, api: Api
) -> None:
    row = play(shape, api)
    assert row.arrivals_ns[0] >= truth_of(row)["sent_ns"][0]
    assert len(row.arrivals_ns) == TOKENS


@pytest.mark.parametrize("shape", ["reasoning_content", "reasoning", "reasoning_both", "reasoning_then_content"])
def test_3_reasoning_is_output_once(
    play: Callable[..., Row], truth_of: Callable[[Row], dict[str, Any]], shape: str
) -> None:
    row = play(shape, "chat")
    assert (sum(row.event_tokens), row.error_kind) == (TOKENS, "")
    assert row.arrivals_ns[0] - truth_of(row)["sent_ns"][0] < truth_of(row)["sent_ns"][2] - truth_of(row)["sent_ns"][0]


@pytest.mark.parametrize("shape", ["usage_final", "usage_empty", "usage_choiceless", "usage_each"])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_4_usage_is_read_wherever_it_comes(play: Callable[..., Row], shape: str, api: Api) -> None:
    assert play(shape, api).usage_tokens == TOKENS


@pytest.mark.parametrize(("shape", "kind"), [("usage_none", "no_usage"), ("short", "short_output")])
def test_4_length_is_never_assumed(play: Callable[..., Row], shape: str, kind: str) -> None:
    row = play(shape)
    assert row.error_kind == kind
    assert sum(row.event_tokens) == (TOKENS if shape == "usage_none" else TOKENS - 3)


@pytest.mark.parametrize(
    "shape", ["status_500", "status_400", "error_first", "error_event", "close", "reset", "garbage"]
)
def test_5_failures_have_their_kind_and_never_pass_for_successes(play: Callable[..., Row], shape: str) -> None:
    assert play(shape).error_kind in {"http_status", "stream_error", "disconnected", "bad_event"}


def test_5_one_success_among_failures_gives_no_figure_to_judge(
    loop: Callable[..., list[Row]], cell: Callable[..., Cell]
) -> None:
    rows = [r if i == 30 else dataclasses.replace(r, error_kind="http_status") for i, r in enumerate(loop())]
    found = cell(rows)
    assert not found.valid
    assert found.failures > 100


def test_6_a_replayed_prompt_cannot_pass(loop: Callable[..., list[Row]], cell: Callable[..., Cell]) -> None:
    assert not cell(loop(cached_tokens=1)).valid
    assert not cell(loop(prompt_sha256="x")).valid
    lists = [PromptList(f"1/prompts/{block}", Lengths(32, 8)) for block in (0, 1)]
    assert not {lists[0].prompt(4, s, 0).text for s in range(4)} & {lists[1].prompt(4, s, 0).text for s in range(4)}


def test_7_the_ramp_is_not_in_the_measured_time(loop: Callable[..., list[Row]], cell: Callable[..., Cell]) -> None:
    steady = cell(loop(seconds=40), end_s=35, start_s=15)
    late = [r for r in loop(seconds=40) if r.sent_ns >= r.user * 3e9]
    ramped = cell(late, end_s=35, start_s=15)
    assert ramped.window_s == steady.window_s
    assert ramped.tokens_per_s == pytest.approx(steady.tokens_per_s)


@pytest.mark.parametrize("guards", [{"loop_lag_p99_ms": 50.0}, {"loop_lag_p99_ms": 0.1, "cpu_share": 0.99}, {}])
def test_8_a_client_that_is_the_bottleneck_says_so(
    loop: Callable[..., list[Row]], cell: Callable[..., Cell], guards: dict[str, float]
) -> None:
    assert not cell(loop(), level={"guards": guards}).valid


def test_9_tokens_sent_apart_arrive_apart(play: Callable[..., Row]) -> None:
    row = play("plain", tokens=60)
    gaps = np.diff(row.arrivals_ns) / 1e6
    assert np.mean(gaps == 0) < 0.3
    assert row.glued < 20


@pytest.mark.parametrize("shape", ["close", "reset", "no_finish", "no_terminator", "hang"])
def test_9_a_dropped_stream_is_not_a_normal_end(play: Callable[..., Row], shape: str) -> None:
    assert play(shape).error_kind in {"disconnected", "no_terminator", "stalled"}


def test_10_the_window_does_not_open_with_a_burst() -> None:
    ends = sorted(first_output_tokens("s", 96, slot, 256) for slot in range(96))
    steps = [b - a for a, b in pairwise(ends)]
    assert max(steps) <= 3
    assert (ends[0], ends[-1]) == (3, 256)
