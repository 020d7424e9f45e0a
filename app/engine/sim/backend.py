"""The engine behind the HTTP surface: what all roles share, and the role that does both prefill and decode."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from app.engine.sim.answer import Answer
from app.engine.sim.calibration import Calibration
from app.engine.sim.clock import WallClock
from app.engine.sim.generation import Generation
from app.engine.sim.kv import PagedKv
from app.engine.sim.metrics import Counters, Gauges
from app.engine.sim.options import Options
from app.engine.sim.protocol import Connection
from app.engine.sim.scheduler import Decode, Job, Loop, Prefill, Stepper, Unified
from app.engine.sim.timing import Timing
from app.engine.sim.truth import Truth
from app.errors import UsageError

MAX_BEHIND_WALL_S = 0.25


@dataclass(frozen=True, slots=True)
class Parts:
    """What every backend is made of."""

    options: Options
    calibration: Calibration
    clock: WallClock
    truth: Truth

    def kv(self) -> PagedKv:
        """KV memory of the capacity asked for, else the calibration's."""
        return PagedKv(self.options.max_total_tokens or self.calibration.capacity_tokens, self.options.page_size)


class Engine:
    """What the roles share: answers by job, limits, counters, and the loop that steps."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.counters = Counters()
        self.kv = parts.kv()
        self.answers: dict[Job, Answer] = {}
        self._loop: Loop

    @property
    def resyncs(self) -> int:
        """How often the process fell so far behind that time was taken as lost."""
        return self._loop.resyncs

    def accept(self, generation: Generation, connection: Connection, received_ns: int) -> None:
        """Starts an answer; UsageError when it cannot be served."""
        self._check(generation)
        parts = self.parts
        report = parts.options.enable_cache_report
        answer = Answer(generation, connection, parts.clock, parts.truth, received_ns, report)
        target, finish = self._target(generation)
        job = Job(generation.prompt, target, answer, finish, parts.clock.now_s())
        self.answers[job] = answer
        answer.on_gone = lambda _: self._gone(job, aborted=True)
        self._enter(job, answer)

    def flush(self) -> bool:
        """Empties the prefix cache; False while requests run."""
        if self.answers:
            return False
        self.kv.forget()
        return True

    def abort(self, rid: str, everything: bool) -> None:
        """Ends one request, or all, with finish_reason abort."""
        for job, answer in list(self.answers.items()):
            if everything or answer.generation.rid == rid:
                answer.finish(job, "abort")
                self._gone(job, aborted=True)

    def gauges(self) -> Gauges:
        """State of this moment."""
        raise NotImplementedError

    def _enter(self, job: Job, answer: Answer) -> None:
        raise NotImplementedError

    def _drop(self, job: Job) -> None:
        raise NotImplementedError

    def _run(self, stepper: Stepper) -> None:
        self._loop = Loop(self.parts.clock, stepper, MAX_BEHIND_WALL_S * self.parts.clock.time_scale)

    def _check(self, generation: Generation) -> None:
        tokens, limit = len(generation.prompt), self.parts.options.context_length
        if tokens + generation.max_tokens > limit:
            raise UsageError(
                f"Requested token count exceeds the model's maximum context length of {limit} tokens: {tokens} tokens "
                f"from the input messages and {generation.max_tokens} for the completion"
            )
        if self.kv.pages_for(tokens + generation.max_tokens) > self.kv.pages:
            raise UsageError(
                f"{tokens} + {generation.max_tokens} tokens do not fit {self.kv.pages * self.kv.page_size} of KV"
            )

    def _target(self, generation: Generation) -> tuple[int, str]:
        if generation.ignore_eos:
            return generation.max_tokens, "length"
        draw = random.Random(generation.prompt_sha256).random()
        stop = 1 + int(-math.log(1 - draw) * self.parts.calibration.mean_answer_tokens)
        stop = max(stop, generation.min_tokens, 1)
        return (stop, "stop") if stop < generation.max_tokens else (generation.max_tokens, "length")

    def _produce(self, job: Job, when_s: float) -> None:
        # A job that was put out and prefilled again is no longer at its first token.
        if not job.produced:
            self.counters.first_token.observe(when_s - job.entered_s)
        job.produce(when_s)

    def _close(self, job: Job) -> Answer | None:
        answer = self.answers.pop(job, None)
        if answer is not None:
            self.counters.num_requests += 1
            self.counters.prompt_tokens += len(job.prompt)
            self.counters.generation_tokens += job.produced
            self.counters.cached_tokens += job.cached_tokens
        return answer

    def _gone(self, job: Job, aborted: bool = False) -> None:
        if self.answers.pop(job, None) is not None:
            self.counters.num_aborted += aborted
            self._drop(job)


class SingleEngine(Engine):
    """Prefill and decode in one process."""

    def __init__(self, parts: Parts, timing: Timing) -> None:
        super().__init__(parts)
        calibration = parts.calibration
        self.decode = Decode(self.kv, self.counters, timing.step_s, self._ended, self._retracted)
        self.prefill = Prefill(
            self.kv,
            self.counters,
            calibration.prefill.seconds,
            int(calibration.prefill.chunk_tokens),
            self._prefilled,
            self._may_start,
        )
        self._run(Unified(self.prefill, self.decode))

    def gauges(self) -> Gauges:
        """State of this moment."""
        queued = len(self.prefill.waiting) + len(self.prefill.batch)
        return replace(
            kv_gauges(self.kv), running=len(self.decode.running), queued=queued, gen_throughput=self.decode.rate
        )

    def _enter(self, job: Job, answer: Answer) -> None:
        self.prefill.waiting.append(job)
        self._loop.wake()

    def _may_start(self) -> bool:
        return len(self.decode.running) + len(self.prefill.batch) < self.parts.options.max_running_requests

    def _prefilled(self, job: Job, when_s: float) -> None:
        self._produce(job, when_s)
        if job.finished:
            self.decode.leave(job)
        else:
            self.decode.join(job)

    def _retracted(self, job: Job) -> None:
        self.prefill.waiting.appendleft(job)

    def _ended(self, job: Job) -> None:
        if self._close(job) is not None:
            self.kv.remember(job.prompt)

    def _drop(self, job: Job) -> None:
        if job in self.decode.running:
            self.decode.leave(job)
        else:
            self.prefill.drop(job)


def kv_gauges(kv: PagedKv) -> Gauges:
    """The gauges that follow from KV memory."""
    return Gauges(
        used_tokens=kv.used * kv.page_size,
        evictable_tokens=kv.cached * kv.page_size,
        capacity_tokens=kv.pages * kv.page_size,
        cache_hit_rate=kv.hit_rate,
    )
