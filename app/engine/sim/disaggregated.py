"""The two roles of prefill/decode disaggregation as backends."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from app.engine.sim.answer import Answer
from app.engine.sim.backend import Engine, Parts, kv_gauges
from app.engine.sim.generation import Bootstrap, Generation
from app.engine.sim.metrics import Gauges
from app.engine.sim.scheduler import Decode, Job, Prefill
from app.engine.sim.timing import Timing
from app.engine.sim.transfer import Arrival, Peer, Receiver
from app.errors import UsageError

NO_ROOM = "Disaggregated request received without bootstrap room id"


class PrefillEngine(Engine):
    """The prefill role: waits for decode to ask for a room, prefills, hands the KV over, answers with one token."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        calibration = parts.calibration
        self.prefill = Prefill(
            self.kv, self.counters, calibration.prefill.seconds, int(calibration.prefill.chunk_tokens), self._prefilled
        )
        self._jobs: dict[int, Job] = {}
        self._peers: dict[int, Peer] = {}
        self._inflight: set[Job] = set()
        self._run(self.prefill)

    def gauges(self) -> Gauges:
        """State of this moment."""
        return replace(
            kv_gauges(self.kv),
            running=len(self.prefill.batch),
            queued=len(self.prefill.waiting),
            bootstrapping=sum(room not in self._peers for room in self._jobs),
            inflight=len(self._inflight),
        )

    def asked(self, peer: Peer, room: int) -> None:
        """Decode has memory for the room: its prompt may be prefilled."""
        self._peers[room] = peer
        if room in self._jobs:
            self._start(self._jobs[room])

    def cancelled(self, peer: Peer, room: int) -> None:
        """Decode gave the room up."""
        self._fail(room, "the decode service gave the request up")

    def lost(self, peer: Peer) -> None:
        """A decode service is gone, and with it all its rooms."""
        for room in [r for r, p in self._peers.items() if p is peer]:
            self._fail(room, "lost the decode service")

    def _check(self, generation: Generation) -> None:
        super()._check(generation)
        _bootstrap(generation)

    def _target(self, generation: Generation) -> tuple[int, str]:
        return 1, "length"

    def _enter(self, job: Job, answer: Answer) -> None:
        room = _bootstrap(answer.generation).room
        self._jobs[room] = job
        if room in self._peers:
            self._start(job)
        else:
            wait_s = self.parts.calibration.transfer.bootstrap_timeout_s
            self.parts.clock.at(self.parts.clock.now_s() + wait_s, lambda _: self._overdue(room, job))

    def _start(self, job: Job) -> None:
        job.queued_s = self.parts.clock.now_s()
        self.prefill.waiting.append(job)
        self._loop.wake()

    def _overdue(self, room: int, job: Job) -> None:
        if self._jobs.get(room) is job and room not in self._peers:
            self.counters.bootstrap_failed += 1
            self._fail(room, "decode did not ask for the KV in time")

    def _prefilled(self, job: Job, when_s: float) -> None:
        self._inflight.add(job)
        self.parts.clock.at(
            when_s + self.parts.calibration.transfer.seconds(len(job.prompt)), lambda t: self._handed(job, t)
        )

    def _handed(self, job: Job, when_s: float) -> None:
        self._inflight.discard(job)
        answer = self.answers.get(job)
        if answer is None:
            return
        room = _bootstrap(answer.generation).room
        self._peers.pop(room).delivered(room, job.cached_tokens)
        self._observe(job)
        self._jobs.pop(room)
        self.prefill.drop(job)
        self.kv.remember(job.prompt)
        self._produce(job, when_s)
        self._close(job)

    def _observe(self, job: Job) -> None:
        transfer, tokens = self.parts.calibration.transfer, len(job.prompt)
        self.counters.transfers.moved(transfer.seconds(tokens), transfer.size_bytes(tokens))
        self.counters.transfers.waited(job.queued_s - job.entered_s, 0.0)

    def _fail(self, room: int, reason: str) -> None:
        self._peers.pop(room, None)
        job = self._jobs.get(room)
        if job is None:
            return
        self.counters.transfer_failed += 1
        self.answers[job].fail(f"Prefill transfer failed for request rank=0 room={room}: {reason}")
        self._gone(job)

    def _drop(self, job: Job) -> None:
        room = next((r for r, j in self._jobs.items() if j is job), None)
        if room is not None:
            del self._jobs[room]
            peer = self._peers.pop(room, None)
            if peer is not None:
                peer.failed(room, "the prefill request was aborted")
        self._inflight.discard(job)
        self.prefill.drop(job)


class DecodeEngine(Engine):
    """The decode role: reserves KV, fetches it from prefill, decodes."""

    def __init__(self, parts: Parts, timing: Timing) -> None:
        super().__init__(parts)
        self.decode = Decode(self.kv, self.counters, timing.step_s, self._ended, self._retracted)
        self._receiver = Receiver(parts.options.bootstrap_port)
        self._waiting: deque[Job] = deque()
        self._fetching: dict[Job, Answer] = {}
        self._ready: deque[Job] = deque()
        self._put_out: deque[Job] = deque()
        self._run(self)

    def gauges(self) -> Gauges:
        """State of this moment."""
        return replace(
            kv_gauges(self.kv),
            running=len(self.decode.running),
            queued=len(self._ready) + len(self._put_out),
            preallocating=len(self._waiting),
            transferring=len(self._fetching),
            retracted=len(self._put_out),
            gen_throughput=self.decode.rate,
        )

    def begin(self, now_s: float) -> float | None:
        """Takes back what was put out, takes in what arrived, and decodes."""
        while self._put_out and self._resume(self._put_out[0]):
            self._put_out.popleft()
        while self._ready:
            job = self._ready.popleft()
            # The first token came with the KV; it leaves as the request joins the batch.
            self._produce(job, now_s)
            if job.finished:
                self.decode.leave(job)
            else:
                self.decode.join(job)
        return self.decode.begin(now_s)

    def end(self, now_s: float) -> None:
        """The step is through."""
        self.decode.end(now_s)

    def _check(self, generation: Generation) -> None:
        super()._check(generation)
        _bootstrap(generation)

    def _enter(self, job: Job, answer: Answer) -> None:
        self._waiting.append(job)
        self._preallocate()

    def _preallocate(self) -> None:
        while self._waiting and len(self._fetching) + self._held() < self.parts.options.max_running_requests:
            job = self._waiting[0]
            pages = self.kv.pages_for(len(job.prompt) + 1)
            reserve = self.kv.pages_for(min(self.parts.calibration.reserved_tokens, job.target))
            # Alone it is let in without the reserve, else a small memory would never serve a long answer.
            crowded = self.kv.used and pages + reserve * (1 + len(self.decode.running)) > self.kv.free
            if crowded or not self.kv.take(pages):
                return
            job.pages = pages
            self._waiting.popleft()
            self._fetch(job)

    def _fetch(self, job: Job) -> None:
        answer = self._fetching[job] = self.answers[job]
        # No handshake is simulated: all of the wait is for memory, or for a place in the batch.
        self.counters.transfers.waited(0.0, self.parts.clock.now_s() - job.entered_s)
        self._receiver.fetch(_bootstrap(answer.generation), lambda arrival: self._arrived(job, arrival))
        wait_s = self.parts.calibration.transfer.waiting_timeout_s
        self.parts.clock.at(self.parts.clock.now_s() + wait_s, lambda _: self._overdue(job))

    def _arrived(self, job: Job, arrival: Arrival) -> None:
        answer = self._fetching.pop(job, None)
        if answer is None:
            return
        if arrival.ok:
            job.cached_tokens = arrival.cached_tokens
            self._ready.append(job)
            self._loop.wake()
        else:
            self._fail(job, answer, arrival.reason)

    def _overdue(self, job: Job) -> None:
        answer = self._fetching.get(job)
        if answer is not None:
            self._receiver.cancel(_bootstrap(answer.generation))
            del self._fetching[job]
            self._fail(job, answer, "the KV did not arrive in time")

    def _fail(self, job: Job, answer: Answer, reason: str) -> None:
        self.counters.transfer_failed += 1
        answer.fail(f"Decode transfer failed for request rank=0 room={_bootstrap(answer.generation).room}: {reason}")
        self._gone(job)

    def _resume(self, job: Job) -> bool:
        pages = self.kv.pages_for(job.tokens + 1)
        # A page to spare for each that runs, else the next step puts it out again.
        if pages + len(self.decode.running) > self.kv.free and self.decode.running:
            return False
        if not self.kv.take(pages):
            return False
        job.pages = pages
        self.decode.join(job)
        return True

    def _retracted(self, job: Job) -> None:
        self._put_out.append(job)

    def _ended(self, job: Job) -> None:
        self._close(job)
        self._preallocate()
        self._loop.wake()

    def _held(self) -> int:
        return len(self.decode.running) + len(self._ready) + len(self._put_out)

    def _drop(self, job: Job) -> None:
        answer = self._fetching.pop(job, None)
        if answer is not None:
            self._receiver.cancel(_bootstrap(answer.generation))
        for queue in (self._waiting, self._ready, self._put_out):
            if job in queue:
                queue.remove(job)
        self.decode.leave(job)


def _bootstrap(generation: Generation) -> Bootstrap:
    if generation.bootstrap is None:
        raise UsageError(NO_ROOM)
    return generation.bootstrap
