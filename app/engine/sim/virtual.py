"""Closed-loop serving in virtual time, without noise, sockets or a client: what a perfect measurement would find."""

from __future__ import annotations

from app.engine.sim.calibration import Calibration
from app.engine.sim.clock import VirtualClock
from app.engine.sim.kv import PagedKv
from app.engine.sim.metrics import Counters
from app.engine.sim.scheduler import Decode, Job, Loop, Prefill
from app.errors import UsageError

PAGE_TOKENS = 256
SETTLE_STEPS = 512
WINDOW_STEPS = 2048


class ClosedLoop:
    """`concurrency` users on one prefill and one decode service, each sending its next request when the last one ends.

    overhead_s: engine seconds that client and router add between an answer's end and the next arrival.
    """

    def __init__(
        self,
        calibration: Calibration,
        choice: str,
        concurrency: int,
        prompt_tokens: int,
        output_tokens: int,
        overhead_s: float = 0.0,
    ) -> None:
        self.calibration, self.choice, self.concurrency = calibration, choice, concurrency
        self.prompt_tokens, self.output_tokens, self.overhead_s = prompt_tokens, output_tokens, overhead_s
        self.clock = VirtualClock()
        self._window_s = (0.0, 0.0)
        self._left = 0
        self._sent = 0
        counters, capacity = Counters(), calibration.capacity_tokens
        self._decode = Decode(PagedKv(capacity, PAGE_TOKENS), counters, self._step_s, self._ended, self._retracted)
        self._prefill = Prefill(
            PagedKv(capacity, PAGE_TOKENS),
            counters,
            calibration.prefill.seconds,
            int(calibration.prefill.chunk_tokens),
            self._prefilled,
        )
        self._ready: list[Job] = []
        self._decoding = Loop(self.clock, self, float("inf"))
        self._prefilling = Loop(self.clock, self._prefill, float("inf"))

    def tokens_per_s(self) -> float:
        """Output tokens per engine second over 2048 decode steps, after 512 that are discarded."""
        step_s = self.calibration.step_s(self.choice, self.concurrency)
        answer_s = self.output_tokens * step_s
        for user in range(self.concurrency):
            # Staggered over one answer, as a fair client does; in lockstep prefill would come in waves.
            self.clock.at(user * answer_s / self.concurrency, lambda _: self._send())
        self._window_s = SETTLE_STEPS * step_s, (SETTLE_STEPS + WINDOW_STEPS) * step_s
        self.clock.run_until(self._window_s[1])
        return self._left / (WINDOW_STEPS * step_s)

    def begin(self, now_s: float) -> float | None:
        """Lets in what arrived and decodes."""
        ready, self._ready = self._ready, []
        for job in ready:
            job.produce(now_s)
            self._decode.join(job)
        return self._decode.begin(now_s)

    def end(self, now_s: float) -> None:
        """The step is through."""
        self._decode.end(now_s)

    def token(self, job: Job, when_s: float) -> None:
        """A token left."""
        self._left += self._window_s[0] < when_s <= self._window_s[1]

    def prepare(self, job: Job) -> None:
        """Nothing to render."""

    def _step_s(self, batch: int, now_s: float) -> float:
        return self.calibration.step_s(self.choice, batch)

    def _send(self) -> None:
        self._sent += 1
        # No two prompts share their first page, so none is found in the cache.
        prompt = (str(self._sent), *("word",) * (self.prompt_tokens - 1))
        self._prefill.waiting.append(Job(prompt, self.output_tokens, self))
        self._prefilling.wake()

    def _prefilled(self, job: Job, when_s: float) -> None:
        self._prefill.drop(job)
        self.clock.at(when_s + self.calibration.transfer.seconds(self.prompt_tokens), lambda _: self._arrived(job))

    def _arrived(self, job: Job) -> None:
        self._ready.append(job)
        self._decoding.wake()

    def _retracted(self, job: Job) -> None:
        raise UsageError(f"{self.concurrency} answers do not fit the KV capacity of {self.calibration.path}")

    def _ended(self, job: Job) -> None:
        self.clock.at(self.clock.now_s() + self.overhead_s, lambda _: self._send())


def truth(
    calibration: Calibration,
    config_a: str,
    config_b: str,
    concurrency: int,
    prompt_tokens: int = 1024,
    output_tokens: int = 256,
    overhead_s: float = 0.0,
) -> float:
    """The true effect of running config_a instead of config_b: output tokens/s in closed loop, as a fraction (-0.07 is
    -7 %).

    This, not the ratio of step times, is what a perfect lab would measure: prefill, transfer and waiting for the next
    step are the same under both configs and dilute a little. For tests; the lab's verdict never reads the
    calibration.
    """
    rates = [
        ClosedLoop(calibration, c, concurrency, prompt_tokens, output_tokens, overhead_s).tokens_per_s()
        for c in (config_a, config_b)
    ]
    return rates[0] / rates[1] - 1


def step_effect(calibration: Calibration, config_a: str, config_b: str, batch: int) -> float:
    """Effect on decode throughput at a constant batch, as a fraction: what the closed loop dilutes."""
    return calibration.step_s(config_b, batch) / calibration.step_s(config_a, batch) - 1
