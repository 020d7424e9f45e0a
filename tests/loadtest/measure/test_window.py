"""Cells out of rows whose truth is known by arithmetic."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadtest.cells import Cell
from loadtest.client.rows import Row, Rows
from loadtest.measure.events import Events
from loadtest.measure.window import measure
from loadtest.plan import Objectives, Plan, Start

Loop = Callable[..., list[Row]]
AsRows = Callable[[list[Row]], Rows]
Record = Callable[..., dict[str, Any]]
START = Start(2, 1, "v", (4,))


def test_ideal_loop_gives_its_own_figures(loop: Loop, cell: Callable[..., Cell]) -> None:
    found = cell(loop(concurrency=4, output_tokens=50, ttft_ms=50, itl_ms=10))
    assert (found.block, found.start, found.variant, found.concurrency, found.reasons) == (2, 1, "v", 4, ())
    assert found.tokens_per_s == pytest.approx(4 * 50 / 0.54, rel=2e-3)
    assert (found.ttft_p50_ms, found.tpot_p50_ms, found.e2e_p50_ms) == pytest.approx((50, 10, 540))
    assert (found.itl_p50_ms, found.itl_p99_ms) == pytest.approx((10, 10))
    assert (found.failures, found.short_outputs, found.window_s) == (0, 0, 20)


def test_time_scale_turns_wall_into_engine_time_once(loop: Loop, cell: Callable[..., Cell]) -> None:
    wall, engine = cell(loop()), cell(loop(), time_scale=10.0)
    assert engine.tokens_per_s == pytest.approx(wall.tokens_per_s / 10)
    assert (engine.ttft_p50_ms, engine.window_s) == pytest.approx((wall.ttft_p50_ms * 10, 200))


def test_credit_shares_an_event_that_straddles_an_edge(as_rows: AsRows, one_row: Callable[..., Row]) -> None:
    events = Events.of(as_rows([one_row(0, 1, 0, 0, [100, 200, 300], event_tokens=[2, 4, 4])]))
    assert events.credit(100, 301) == 10
    assert events.credit(150, 250) == 4
    assert events.credit(0, 100) == 0
    assert events.credit(100, 200) + events.credit(200, 301) == 10


def test_credit_is_additive_over_any_cut(as_rows: AsRows, loop: Loop) -> None:
    events = Events.of(as_rows(loop(concurrency=3, seconds=5)))
    edges = np.sort(np.random.default_rng(3).integers(0, 5 * 10**9, 40))
    assert events.series(edges).sum() == pytest.approx(events.credit(int(edges[0]), int(edges[-1])))


def test_ramp_and_drain_leave_no_trace_in_the_figures(loop: Loop, cell: Callable[..., Cell]) -> None:
    rows = loop()
    ramp: dict[str, Any] = {"sent_ns": -(10**10), "ended_ns": -(9 * 10**9)}
    ramp |= {"arrivals_ns": [-(9 * 10**9)], "event_tokens": [1]}
    slow = [dataclasses.replace(r, prompt_sha256=f"ramp {r.prompt_sha256}", **ramp) for r in rows[:3]]
    assert cell(rows) == cell(slow + rows)


def test_unfinished_streams_count_by_their_events(loop: Loop, cell: Callable[..., Cell]) -> None:
    whole = loop(seconds=60)
    cut = [r if r.ended_ns < 25e9 else dataclasses.replace(r, error_kind="cut", usage_tokens=-1) for r in whole]
    assert cell(cut).tokens_per_s == pytest.approx(cell(whole).tokens_per_s)
    assert cell(cut).failures == 0


def alone(plan: Plan) -> Plan:
    return dataclasses.replace(plan, window=dataclasses.replace(plan.window, decode_only=True))


def test_decode_alone_is_timed_by_what_arrives_inside_the_window(
    as_rows: AsRows, loop: Loop, load_record: Record, plan: Plan
) -> None:
    rows = [r for r in loop(output_tokens=50_000, itl_ms=8) if r.sequence == 0 and len(r.arrivals_ns) > 10_000]
    found = measure(START, as_rows(rows), load_record(), alone(plan))[0]
    assert (found.reasons, found.requests) == ((), 0)
    assert found.tpot_p50_ms == pytest.approx(8)
    assert np.isnan(found.ttft_p50_ms)


def test_a_stream_that_was_cut_between_two_far_events_was_in_the_batch_until_then(
    as_rows: AsRows, one_row: Callable[..., Row], load_record: Record, plan: Plan
) -> None:
    # Eight tokens an event and 31 ms a step: the last event before the cut lies up to 248 ms before it.
    beats = [[int((0.2 + 0.06 * slot + 0.248 * i) * 1e9) for i in range(101)] for slot in range(4)]
    rows = [one_row(slot, 4, 0, 0, at, event_tokens=[8] * 101) for slot, at in enumerate(beats)]
    cut = [dataclasses.replace(r, error_kind="cut", ended_ns=int(25.2e9)) for r in rows]
    rules = dataclasses.replace(alone(plan), window=dataclasses.replace(alone(plan).window, batch_share=0.999))
    end = {"start_s": 24.2, "end_s": 25.2}
    assert not any("decode batch" in r for r in measure(START, as_rows(cut), load_record(**end), rules)[0].reasons)
    whole = measure(START, as_rows(rows), load_record(**end), rules)[0].reasons
    assert any("decode batch fell" in r for r in whole)


def test_what_a_cut_stream_had_not_yet_sent_lowers_no_rate(
    as_rows: AsRows, one_row: Callable[..., Row], load_record: Record, plan: Plan
) -> None:
    # Eight tokens every 248 ms and a cut at the window's end: on the average half an event is still on its way.
    beats = [[int((0.2 + 0.06 * slot + 0.248 * i) * 1e9) for i in range(20)] for slot in range(4)]
    seen = [[at for at in own if at < 4e9] for own in beats]
    rows = [one_row(slot, 4, 0, 0, at, event_tokens=[8] * len(at)) for slot, at in enumerate(seen)]
    cut = [dataclasses.replace(r, error_kind="cut", ended_ns=int(4e9)) for r in rows]
    found = measure(START, as_rows(cut), load_record(start_s=1, end_s=4), alone(plan))[0]
    assert found.tokens_per_s == pytest.approx(4 * 8 / 0.248, rel=1e-6)
    assert 2.7 < found.window_s < 3


def test_an_answer_that_ends_inside_a_window_of_decode_alone_voids_it(
    as_rows: AsRows, loop: Loop, load_record: Record, plan: Plan
) -> None:
    found = measure(START, as_rows(loop()), load_record(), alone(plan))[0]
    # 25 s at 10 ms a token and a tenth.
    assert any("of decode alone; --lengths must ask for at least 2,800 tokens" in reason for reason in found.reasons)


def test_prompts_of_decode_alone_may_neither_repeat_nor_come_from_the_prefix_cache(
    as_rows: AsRows, loop: Loop, load_record: Record, plan: Plan
) -> None:
    rows = loop(output_tokens=50_000, prompt_sha256="same", cached_tokens=5)
    found = measure(START, as_rows(rows), load_record(), alone(plan))[0]
    assert {"the same prompt was sent twice", "4 prompts were served from the prefix cache"} <= {*found.reasons}


def test_level_without_a_window_is_void(loop: Loop, cell: Callable[..., Cell]) -> None:
    found = cell(loop(), level={"window_end_ns": 0, "reasons": ["not filled"]})
    assert (found.reasons, found.valid) == (("not filled", "no complete window"), False)


def test_ramp_inside_the_window_is_cut_or_void(loop: Loop, cell: Callable[..., Cell]) -> None:
    def slower(row: Row, factor: Callable[[float], float]) -> Row:
        base, arrivals = row.sent_ns, [row.sent_ns]
        for gap in np.diff([base, *row.arrivals_ns]):
            arrivals.append(arrivals[-1] + int(gap * factor(arrivals[-1] / 1e9)))
        return dataclasses.replace(row, arrivals_ns=arrivals[1:], ended_ns=arrivals[-1])

    def chained(factor: Callable[[float], float]) -> list[Row]:
        out, end = [], dict.fromkeys(range(4), 0)
        for row in sorted(loop(seconds=40), key=lambda r: (r.user, r.sequence)):
            shift = end[row.user] - row.sent_ns
            moved = dataclasses.replace(
                row, sent_ns=row.sent_ns + shift, arrivals_ns=[a + shift for a in row.arrivals_ns]
            )
            out.append(slower(moved, factor))
            end[row.user] = out[-1].ended_ns + 1
        return out

    steady = cell(loop(seconds=40)).tokens_per_s
    warming = cell(chained(lambda t: 1.3 if t < 12 else 1.0))
    assert warming.reasons == ()
    assert warming.tokens_per_s == pytest.approx(steady, rel=0.01)
    throttling = cell(chained(lambda t: 1 + t / 50))
    assert any("not steady" in r for r in throttling.reasons)


@pytest.mark.parametrize("kind", ["short_output", "finish_reason", "long_output"])
def test_any_output_of_another_length_voids_the_cell(loop: Loop, cell: Callable[..., Cell], kind: str) -> None:
    rows = loop()
    rows[20] = dataclasses.replace(rows[20], error_kind=kind)
    found = cell(rows)
    assert (found.short_outputs, found.failures) == (1, 0)
    assert any("another length" in r for r in found.reasons)


def test_failures_are_counted_apart_and_void_when_many(loop: Loop, cell: Callable[..., Cell]) -> None:
    lost: dict[str, Any] = {"error_kind": "http_status", "arrivals_ns": [], "event_tokens": []}
    rows = [dataclasses.replace(r, **lost) if r.sequence % 4 == 3 else r for r in loop()]
    found = cell(rows)
    assert found.failures > 20
    assert found.e2e_p50_ms == pytest.approx(540)
    assert any("http_status" in r for r in found.reasons)


def test_itl_is_undefined_when_events_carry_several_tokens(loop: Loop, cell: Callable[..., Cell]) -> None:
    rows = [dataclasses.replace(r, event_tokens=[4] * len(r.arrivals_ns)) for r in loop()]
    found = cell(rows)
    assert np.isnan([found.itl_p50_ms, found.itl_p99_ms]).all()
    assert found.tpot_p50_ms == pytest.approx(49 * 10 / (50 * 4 - 4))


def test_repeated_prompt_and_cache_hit_void_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    assert any("twice" in r for r in cell(loop(prompt_sha256="same")).reasons)
    assert any("prefix cache" in r for r in cell(loop(cached_tokens=8)).reasons)


def test_more_in_flight_than_asked_voids_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    assert any("5 requests in flight at C=4" in r for r in cell(loop(concurrency=5)).reasons)


def test_fewer_in_flight_than_asked_voids_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    assert any("on average at C=4" in r for r in cell(loop(concurrency=3)).reasons)


@pytest.mark.parametrize(
    ("guards", "word"),
    [({}, "no record"), ({"loop_lag_p99_ms": 25.0}, "lag"), ({"loop_lag_p99_ms": 1.0, "cpu_share": 0.97}, "saturated")],
)
def test_client_that_did_not_keep_up_voids_the_cell(
    loop: Loop, cell: Callable[..., Cell], guards: dict[str, float], word: str
) -> None:
    assert any(word in r for r in cell(loop(), level={"guards": guards}).reasons)


def test_a_lag_just_above_its_limit_does_not_read_as_the_limit(loop: Loop, cell: Callable[..., Cell]) -> None:
    reasons = cell(loop(), level={"guards": {"loop_lag_p99_ms": 20.004, "cpu_share": 0.2}}).reasons
    assert "client late, loop lag p99 20.004 ms (limit 20)" in reasons


def test_late_reads_void_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    assert any("late reads" in r for r in cell(loop(glued=25)).reasons)


@pytest.mark.parametrize(("ttft_ms", "share"), [(1000, 1), (1, 0)])
def test_goodput_of_the_plans_objectives_goes_into_the_cell(
    loop: Loop, as_rows: AsRows, load_record: Record, plan: Plan, ttft_ms: float, share: float
) -> None:
    asked = dataclasses.replace(plan, objectives=Objectives(ttft_ms=ttft_ms))
    found = measure(START, as_rows(loop()), load_record(), asked)[0]
    assert found.goodput_per_s == pytest.approx(share * 4 / 0.54, rel=0.05)


def test_batch_that_falls_for_a_while_voids_the_cell(loop: Loop, cell: Callable[..., Cell]) -> None:
    rows = [r for r in loop() if not (r.user in (2, 3) and 15e9 < r.sent_ns < 20e9)]
    assert any("decode batch fell" in r for r in cell(rows).reasons)


@pytest.mark.parametrize("ended_ns", [24_000_000_000, 40_000_000_000])
def test_stream_that_stands_still_voids_the_cell(loop: Loop, cell: Callable[..., Cell], ended_ns: int) -> None:
    rows = [r for r in loop() if not (r.user == 1 and r.sent_ns > 8e9)]
    last = max((r for r in rows if r.user == 1), key=lambda r: r.sent_ns)
    rows[rows.index(last)] = dataclasses.replace(last, ended_ns=ended_ns, error_kind="cut")
    assert any(re.search(r"a stream stood still for \d\d% of the window", r) for r in cell(rows).reasons)


def test_stream_that_is_interrupted_in_its_middle_for_long_voids_the_cell(
    loop: Loop, cell: Callable[..., Cell]
) -> None:
    rows = [r for r in loop() if not (r.user == 1 and 10e9 < r.sent_ns < 16e9)]
    last = max((r for r in rows if r.user == 1 and r.sent_ns < 16e9), key=lambda r: r.sent_ns)
    late = [*last.arrivals_ns[:-1], 16_000_000_000]
    rows[rows.index(last)] = dataclasses.replace(last, arrivals_ns=late, ended_ns=16_000_000_001)
    assert any("a stream stood still" in r for r in cell(rows).reasons)
