"""Goodput counts what met every limit, over all that was sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from app.errors import UsageError
from loadtest.client.rows import Row, Rows
from loadtest.measure.goodput import goodput
from loadtest.plan import Objectives


def test_failures_count_as_misses(loop: Callable[..., list[Row]], as_rows: Callable[[list[Row]], Rows]) -> None:
    rows = [dataclasses.replace(r, error_kind="disconnected") if r.sequence % 2 else r for r in loop(output_tokens=50)]
    found = goodput(as_rows(rows), int(5e9), int(25e9), 1.0, Objectives(ttft_ms=60))
    assert found.sent == pytest.approx(148, abs=4)
    assert found.met == pytest.approx(found.sent / 2, abs=3)
    assert found.per_s == found.met / 20


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (Objectives(ttft_ms=49), False),
        (Objectives(ttft_ms=51, tpot_ms=9), False),
        (Objectives(ttft_ms=51, tpot_ms=10.1, e2e_ms=541), True),
        (Objectives(e2e_ms=500), False),
    ],
)
def test_every_limit_must_be_met(
    loop: Callable[..., list[Row]], as_rows: Callable[[list[Row]], Rows], limits: Objectives, met: bool
) -> None:
    found = goodput(as_rows(loop()), int(5e9), int(25e9), 1.0, limits)
    assert (found.met == found.sent) if met else (found.met == 0)


def test_limits_are_in_engine_time(loop: Callable[..., list[Row]], as_rows: Callable[[list[Row]], Rows]) -> None:
    assert goodput(as_rows(loop()), int(5e9), int(25e9), 10.0, Objectives(ttft_ms=100)).met == 0


@pytest.mark.parametrize("limits", [{}, {"ttft_ms": 0.0}])
def test_objectives_without_a_limit_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="objective"):
        Objectives(**limits)
