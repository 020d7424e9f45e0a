"""Continuous batching on any clock: prefill in chunks, decode in steps, retraction when KV runs out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.engine.sim.clock import Clock
from app.engine.sim.kv import PagedKv
from app.engine.sim.metrics import Counters


class Sink(Protocol):
    """Where a job's tokens go."""

    def token(self, job: Job, when_s: float) -> None:
        """The job has produced one more token."""
        ...

    def prepare(self, job: Job) -> None:
        """The next token will come; what can be done before it comes is done now."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One request in the engine. target: tokens it will produce, each told to the sink.

    entered_s: engine time it came; queued_s: engine time decode had room for it, as prefill learns.
    pages: held for itself; shared_pages: found in the prefix cache.
    uncomputed: prompt tokens still to prefill.
    """

    prompt: tuple[str, ...]
    target: int
    sink: Sink
    finish: str = "length"
    entered_s: float = 0.0
    queued_s: float = 0.0
    produced: int = 0
    cached_tokens: int = 0
    uncomputed: int = -1
    pages: int = 0
    shared_pages: int = 0

    @property
    def tokens(self) -> int:
        """Tokens whose KV it holds or needs."""
        return len(self.prompt) + self.produced

    @property
    def finished(self) -> bool:
        """Whether every token is out."""
        return self.produced >= self.target

    def produce(self, when_s: float) -> None:
        """One more token."""
        self.produced += 1
        self.sink.token(self, when_s)


class Stepper(Protocol):
    """Work that comes in steps: `begin` gives the step's seconds, or None when there is nothing to do."""

    def begin(self, now_s: float) -> float | None:
        """Forms the next batch."""
        ...

    def end(self, now_s: float) -> None:
        """The batch is through."""
        ...


class Loop:
    """Runs a stepper back to back. A step begins when the one before was planned to end, so lateness does not add up.

    When the process falls behind by more than max_behind_s, time is taken as lost (`resyncs` counts it).
    """

    def __init__(self, clock: Clock, stepper: Stepper, max_behind_s: float) -> None:
        self._clock, self._stepper, self._max_behind_s = clock, stepper, max_behind_s
        self.running = False
        self.resyncs = 0

    def wake(self) -> None:
        """There may be work."""
        if not self.running:
            self._begin(self._clock.now_s())

    def _begin(self, now_s: float) -> None:
        duration_s = self._stepper.begin(now_s)
        self.running = duration_s is not None
        if duration_s is not None:
            self._clock.at(now_s + duration_s, self._end)

    def _end(self, when_s: float) -> None:
        self._stepper.end(when_s)
        now_s = self._clock.now_s()
        if now_s - when_s > self._max_behind_s:
            self.resyncs += 1
            when_s = now_s
        self._begin(when_s)


class Prefill:
    """Prefills waiting jobs in order, up to chunk_tokens a step; a long prompt takes several steps.

    on_done(job, when_s) takes the job over; may_start says whether one more may begin.
    """

    def __init__(
        self,
        kv: PagedKv,
        counters: Counters,
        prefill_s: Callable[[int], float],
        chunk_tokens: int,
        on_done: Callable[[Job, float], None],
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kv, self._counters, self._prefill_s, self._chunk_tokens = kv, counters, prefill_s, chunk_tokens
        self._on_done, self._may_start = on_done, may_start
        self.waiting: deque[Job] = deque()
        self.batch: list[tuple[Job, int]] = []

    def begin(self, now_s: float) -> float | None:
        """Takes waiting jobs while budget, KV and max_running allow."""
        self.batch, budget = [], self._chunk_tokens
        while self.waiting and budget and self._may_start() and self._admit(self.waiting[0]):
            job = self.waiting[0]
            part = min(job.uncomputed, budget)
            self.batch.append((job, part))
            budget -= part
            if part < job.uncomputed:
                break
            self.waiting.popleft()
        if not self.batch:
            return None
        computed = sum(part for _, part in self.batch)
        self._counters.realtime_prefill_compute += computed
        return self._prefill_s(computed)

    def end(self, now_s: float) -> None:
        """Hands over the jobs whose prompt is through."""
        batch, self.batch = self.batch, []
        for job, part in batch:
            job.uncomputed -= part
            if job.uncomputed == 0 and job.pages:
                self._on_done(job, now_s)

    def drop(self, job: Job) -> None:
        """Forgets an aborted job."""
        if job in self.waiting:
            self.waiting.remove(job)
        self._kv.give_back(job.pages)
        job.pages = 0

    def _admit(self, job: Job) -> bool:
        if job.pages:
            return True
        # A retracted job prefills its answer so far again; what it found in the cache is reported as of the first time.
        cached = self._kv.match(job.prompt)
        shared = cached // self._kv.page_size
        pages = self._kv.pages_for(job.tokens + 1) - shared
        if not self._kv.take(pages):
            return False
        job.cached_tokens = cached if not job.produced else job.cached_tokens
        job.pages, job.shared_pages, job.uncomputed = pages, shared, job.tokens - cached
        self._counters.realtime_prefill_cache += cached
        return True


class Decode:
    """Decodes every running job by one token a step.

    on_end(job) is told when a job is through or dropped; on_retract(job) takes what is put out.
    """

    def __init__(
        self,
        kv: PagedKv,
        counters: Counters,
        step_s: Callable[[int, float], float],
        on_end: Callable[[Job], None],
        on_retract: Callable[[Job], None],
    ) -> None:
        self._kv, self._counters, self._step_s = kv, counters, step_s
        self._on_end, self._on_retract = on_end, on_retract
        self.running: list[Job] = []
        self.last_step_s = 0.0

    @property
    def rate(self) -> float:
        """Tokens per engine second of the last step; 0 when nothing runs."""
        return len(self.running) / self.last_step_s if self.last_step_s else 0.0

    def join(self, job: Job) -> None:
        """Adds a job to the next step."""
        self.running.append(job)

    def begin(self, now_s: float) -> float | None:
        """Makes room for one more token each, by retraction if it must."""
        self._make_room()
        if not self.running:
            return None
        for job in self.running:
            job.sink.prepare(job)
        self.last_step_s = self._step_s(len(self.running), now_s)
        return self.last_step_s

    def end(self, now_s: float) -> None:
        """Every running job gets a token; those that are through leave."""
        batch = list(self.running)
        self._counters.realtime_decode += len(batch)
        self._counters.between_tokens.observe(self.last_step_s, len(batch))
        for job in batch:
            job.produce(now_s)
        self.running = [job for job in self.running if not job.finished]
        for job in batch:
            if job.finished:
                self.leave(job)

    def leave(self, job: Job) -> None:
        """Ends a job, through or aborted."""
        if job in self.running:
            self.running.remove(job)
        self._kv.give_back(job.pages)
        job.pages = 0
        self._on_end(job)

    def _make_room(self) -> None:
        for job in list(self.running):
            while job in self.running and not self._grow(job):
                # The latest to come has the least to lose, as in SGLang; one job alone always fits or was refused.
                victim = self.running.pop()
                self._kv.give_back(victim.pages)
                victim.pages = 0
                self._counters.retracted_requests += 1
                self._counters.retracted_output_tokens += victim.produced
                self._on_retract(victim)

    def _grow(self, job: Job) -> bool:
        wanted = self._kv.pages_for(job.tokens + 1)
        held = job.pages + job.shared_pages
        if wanted <= held:
            return True
        if not self._kv.take(wanted - held):
            return False
        job.pages += wanted - held
        return True


class Unified:
    """Prefill and decode in one process: a prefill step goes before a decode step, as in SGLang."""

    def __init__(self, prefill: Prefill, decode: Decode) -> None:
        self._prefill, self._decode = prefill, decode
        self._now: Stepper | None = None

    def begin(self, now_s: float) -> float | None:
        """A prefill step if anything waits and fits, else a decode step."""
        for stepper in (self._prefill, self._decode):
            duration_s = stepper.begin(now_s)
            if duration_s is not None:
                self._now = stepper
                return duration_s
        return None

    def end(self, now_s: float) -> None:
        """Ends the step that was begun."""
        if self._now is not None:
            self._now.end(now_s)
