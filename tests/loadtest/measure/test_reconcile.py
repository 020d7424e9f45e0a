"""What the servers counted, held against what the client received, voids a cell or leaves it valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadtest.cells import Cell
from loadtest.client.rows import Row

Loop = Callable[..., list[Row]]
TRUE_RATE = 4 * 49 / 0.54


def sample(at_s: float, **values: float) -> dict[str, Any]:
    return {"role": "decode", "at_ns": int(at_s * 1e9), "took_ns": 10**6, "values": values}


def served(rate: float, **extra: float) -> list[dict[str, Any]]:
    """Readings once a second of a decode server that counts so many decode tokens a second."""
    names = {"realtime_tokens_total:decode": rate, **extra}
    return [sample(t, num_running_reqs=3.7, **{k: v * t for k, v in names.items()}) for t in range(31)]


def test_server_that_agrees_leaves_the_cell_valid(loop: Loop, cell: Callable[..., Cell]) -> None:
    found = cell(loop(), server={"samples": served(TRUE_RATE)})
    assert found.reasons == ()
    assert found.decode_batch == pytest.approx(3.7)


def test_a_step_more_for_each_ended_request_is_what_an_overlapped_scheduler_counts(
    loop: Loop, cell: Callable[..., Cell]
) -> None:
    assert cell(loop(), server={"samples": served(TRUE_RATE * 50 / 49)}).reasons == ()


def test_of_tokens_that_come_together_with_the_first_that_one_alone_is_prefills(
    loop: Loop, cell: Callable[..., Cell]
) -> None:
    def together(row: Row) -> Row:
        # Eight an event, at the time of its last.
        ends = [*range(7, len(row.arrivals_ns) - 1, 8), len(row.arrivals_ns) - 1]
        tokens = np.diff([-1, *ends]).tolist()
        return dataclasses.replace(row, arrivals_ns=[row.arrivals_ns[end] for end in ends], event_tokens=tokens)

    rows = [together(row) for row in loop()]
    assert cell(rows, server={"samples": served(TRUE_RATE * 50 / 49)}).reasons == ()
    for factor in (0.97, 1.05):
        found = cell(rows, server={"samples": served(TRUE_RATE * factor)})
        assert any("server counted" in r for r in found.reasons), factor


@pytest.mark.parametrize("factor", [0.98, 1.04])
def test_server_that_counts_otherwise_voids_the_cell(loop: Loop, cell: Callable[..., Cell], factor: float) -> None:
    found = cell(loop(), server={"samples": served(TRUE_RATE * factor)})
    assert any("server counted" in r for r in found.reasons)


@pytest.mark.parametrize("name", ["num_retracted_requests_total", "cached_tokens_total", "num_aborted_requests_total"])
def test_growth_of_a_counter_that_must_stand_still_voids_the_cell(
    loop: Loop, cell: Callable[..., Cell], name: str
) -> None:
    found = cell(loop(), server={"samples": served(TRUE_RATE, **{name: 0.1})})
    assert any("decode," in r for r in found.reasons)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("smg_http_responses_total:503", "answers with status 503"), ("smg_worker_retries_total", "retries")],
)
def test_router_that_refuses_or_retries_voids_the_cell(
    loop: Loop, cell: Callable[..., Cell], name: str, reason: str
) -> None:
    router = [sample(t, **{name: 0.2 * t}) | {"role": "router"} for t in range(31)]
    assert any(f"router, 4 {reason}" in r for r in cell(loop(), server={"samples": router}).reasons)


def test_router_that_answers_well_leaves_the_cell_valid(loop: Loop, cell: Callable[..., Cell]) -> None:
    router = [sample(t, **{"smg_http_responses_total:200": 7 * t}) | {"role": "router"} for t in range(31)]
    assert cell(loop(), server={"samples": [*served(TRUE_RATE), *router]}).reasons == ()


def test_queue_at_the_decode_server_voids_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    samples = [s | {"values": s["values"] | {"num_queue_reqs": 2}} for s in served(TRUE_RATE)]
    assert any("queues" in r for r in cell(loop(), server={"samples": samples}).reasons)


def test_unread_counters_are_said(loop: Loop, cell: Callable[..., Cell]) -> None:
    samples = [s | {"error": "refused"} for s in served(TRUE_RATE)]
    assert any("not read" in r for r in cell(loop(), server={"samples": samples}).reasons)
