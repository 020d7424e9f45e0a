from __future__ import annotations

from collections import Counter

import pytest

from app.engine.sim.clock import VirtualClock
from app.engine.sim.kv import PagedKv
from app.engine.sim.metrics import Counters
from app.engine.sim.scheduler import Decode, Job, Loop, Prefill, Unified

FOREVER = float("inf")


class Sink:
    """Keeps when each job's tokens left."""

    def __init__(self) -> None:
        self.times: dict[Job, list[float]] = {}

    def token(self, job: Job, when_s: float) -> None:
        self.times.setdefault(job, []).append(when_s)

    def prepare(self, job: Job) -> None:
        pass


class Bench:
    """A unified engine on a virtual clock: 1 s for a prefill step, 0.1 s for a decode step."""

    def __init__(self, capacity_tokens: int = 10_000, page_size: int = 10, chunk_tokens: int = 100) -> None:
        self.clock, self.sink, self.counters = VirtualClock(), Sink(), Counters()
        self.kv = PagedKv(capacity_tokens, page_size)
        self.ended: list[Job] = []
        self.prefilled_tokens: list[int] = []
        self.decode = Decode(self.kv, self.counters, lambda batch, now: 0.1, self.ended.append, self.retracted)
        self.prefill = Prefill(self.kv, self.counters, self.prefill_s, chunk_tokens, self.prefilled)
        self.loop = Loop(self.clock, Unified(self.prefill, self.decode), FOREVER)

    def prefill_s(self, tokens: int) -> float:
        self.prefilled_tokens.append(tokens)
        return 1.0

    def prefilled(self, job: Job, when_s: float) -> None:
        job.produce(when_s)
        if job.finished:
            self.decode.leave(job)
        else:
            self.decode.join(job)

    def retracted(self, job: Job) -> None:
        self.prefill.waiting.appendleft(job)

    def add(self, prompt_tokens: int, target: int) -> Job:
        job = Job(tuple(str(i) for i in range(prompt_tokens)), target, self.sink)
        self.prefill.waiting.append(job)
        self.loop.wake()
        return job


def test_tokens_come_one_a_step_after_the_prefill() -> None:
    bench = Bench()
    job = bench.add(50, 4)
    bench.clock.run_until(10)
    assert bench.sink.times[job] == pytest.approx([1.0, 1.1, 1.2, 1.3])


def test_long_prompt_takes_several_prefill_steps() -> None:
    bench = Bench(chunk_tokens=100)
    job = bench.add(250, 1)
    bench.clock.run_until(10)
    assert (bench.prefilled_tokens, bench.sink.times[job]) == ([100, 100, 50], [3.0])


def test_prefill_goes_before_decode() -> None:
    bench = Bench()
    first = bench.add(50, 20)
    bench.clock.run_until(1.15)
    second = bench.add(50, 2)
    bench.clock.run_until(10)
    assert bench.sink.times[second][0] == pytest.approx(2.2)
    assert bench.sink.times[first][2:4] == pytest.approx([1.2, 2.3])


def test_second_prompt_finds_the_firsts_pages_in_the_cache() -> None:
    bench = Bench()
    bench.add(50, 1)
    bench.clock.run_until(5)
    bench.kv.remember(tuple(str(i) for i in range(50)))
    job = bench.add(55, 1)
    bench.clock.run_until(10)
    assert (job.cached_tokens, bench.prefilled_tokens, bench.kv.hit_rate) == (50, [50, 5], 50 / 105)


def test_kv_that_runs_out_retracts_and_still_gives_every_token_once() -> None:
    bench = Bench(capacity_tokens=200)
    jobs = [bench.add(30, 60) for _ in range(4)]
    bench.clock.run_until(100)
    assert bench.counters.retracted_requests > 0
    assert Counter(len(bench.sink.times[j]) for j in jobs) == {60: 4}
    assert sorted(map(id, bench.ended)) == sorted(map(id, jobs))
    assert bench.kv.used == 0


def test_memory_is_given_back_when_a_running_job_is_dropped() -> None:
    bench = Bench()
    job = bench.add(50, 100)
    bench.clock.run_until(2)
    bench.decode.leave(job)
    bench.clock.run_until(10)
    assert (bench.kv.used, bench.loop.running) == (0, False)


class LateClock(VirtualClock):
    """Calls back late by `late_s`, as a busy process would."""

    late_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.late_s


class Ticks:
    def __init__(self, count: int) -> None:
        self.left, self.ends = count, list[float]()

    def begin(self, now_s: float) -> float | None:
        return 1.0 if self.left else None

    def end(self, now_s: float) -> None:
        self.left -= 1
        self.ends.append(now_s)


def test_lateness_does_not_add_up() -> None:
    clock, ticks = LateClock(), Ticks(5)
    loop = Loop(clock, ticks, max_behind_s=0.5)
    loop.wake()
    clock.late_s = 0.3
    clock.run_until(10)
    assert (ticks.ends, loop.resyncs) == ([1, 2, 3, 4, 5], 0)


def test_process_that_falls_far_behind_takes_time_as_lost() -> None:
    clock, ticks = LateClock(), Ticks(3)
    loop = Loop(clock, ticks, max_behind_s=0.5)
    loop.wake()
    clock.late_s = 0.75
    clock.run_until(10)
    assert (ticks.ends, loop.resyncs) == ([1.0, 2.75, 4.5], 3)
