"""The clocked mock: answers every request by a shape's fixed schedule and stamps each event as it leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.engine.sim.clock import WallClock
from app.engine.sim.generation import Generation
from app.engine.sim.metrics import Counters, Gauges
from app.engine.sim.protocol import Connection, frame
from app.engine.sim.shapes import Script, Shape
from app.engine.sim.streams import error_body, renderer, words
from app.engine.sim.timeline import Write, answer_tokens, timeline, token_times_ms
from app.engine.sim.truth import Record, Truth

MS_PER_S = 1000.0


@dataclass(slots=True)
class Mock:
    """Plays shapes; `arrivals` counts requests so far."""

    script: Script
    clock: WallClock
    truth: Truth
    arrivals: int = 0
    counters: Counters = field(default_factory=Counters)
    resyncs: int = 0

    def accept(self, generation: Generation, connection: Connection, received_ns: int) -> None:
        """Starts one answer; UsageError for a shape that does not exist."""
        name, shape = self.script.choose(generation.shape, self.arrivals)
        self.arrivals += 1
        record = self.truth.open(
            Record(
                rid=generation.rid,
                prompt_sha256=generation.prompt_sha256,
                user=generation.user,
                shape=name,
                prompt_tokens=len(generation.prompt),
                requested_tokens=generation.max_tokens,
                received_ns=received_ns,
            )
        )
        record.outcome = shape.failure if shape.failure != "none" else shape.finish
        start_s = self._start_s(shape, received_ns)
        if shape.failure == "status":
            self._later(start_s, connection, shape)
        elif shape.failure == "silent":
            connection.on_lost = lambda: None
        elif generation.stream:
            Player(self.clock, self.truth, record, connection, start_s, timeline(shape, generation)).begin(
                shape.chunked
            )
        else:
            self._whole(generation, shape, connection, start_s)

    def gauges(self) -> Gauges:
        """A mock has no batch."""
        return Gauges()

    def flush(self) -> bool:
        """Nothing to flush."""
        return True

    def abort(self, rid: str, everything: bool) -> None:
        """A mock's answers end by their schedule."""

    def _start_s(self, shape: Shape, received_ns: int) -> float:
        received = self.clock.engine_s(received_ns)
        if not shape.tick:
            return received
        grid_s = shape.itl_ms / shape.speed / MS_PER_S * self.clock.time_scale
        first_s = shape.ttft_ms / shape.speed / MS_PER_S * self.clock.time_scale
        return math.ceil((received + first_s) / grid_s) * grid_s - first_s

    def _later(self, start_s: float, connection: Connection, shape: Shape) -> None:
        def answer(_: float) -> None:
            connection.reply(
                shape.status, error_body("refused for a simulated reason", "InternalServerError", shape.status)
            )

        self.clock.at(start_s + shape.ttft_ms / shape.speed / MS_PER_S * self.clock.time_scale, answer)

    def _whole(self, generation: Generation, shape: Shape, connection: Connection, start_s: float) -> None:
        count = answer_tokens(shape, generation)
        text = shape.text * count or "".join(words(generation.prompt_sha256, count))
        body = renderer(generation).whole(text, count, shape.finish, 0)
        end_s = start_s + token_times_ms(shape, count)[-1] / MS_PER_S * self.clock.time_scale
        self.clock.at(end_s, lambda _: connection.reply(200, body))


@dataclass(slots=True)
class Player:
    """Plays one timeline on one connection."""

    clock: WallClock
    truth: Truth
    record: Record
    connection: Connection
    start_s: float
    writes: Iterator[Write]
    lost: bool = False

    def begin(self, chunked: bool) -> None:
        """Sends the head and plans the first write."""
        self.connection.on_lost = self._on_lost
        self.connection.begin_stream(chunked=chunked)
        self._plan(next(self.writes))

    def _plan(self, write: Write) -> None:
        # Shapes are written in wall milliseconds whatever the time scale: the client under test runs on the wall clock.
        when_s = self.start_s + write.at_ms / MS_PER_S * self.clock.time_scale
        chunk = frame(write.data) if write.data and self.connection.chunked else write.data
        self.clock.at(when_s, lambda planned_s: self._play(planned_s, write, chunk))

    def _play(self, planned_s: float, write: Write, chunk: bytes) -> None:
        if self.lost:
            return
        sent_ns = self.connection.send(chunk) if chunk else 0
        self.clock.afterwards(lambda: self._book(planned_s, sent_ns, write))

    def _book(self, planned_s: float, sent_ns: int, write: Write) -> None:
        planned_ns = self.clock.monotonic_ns(planned_s)
        for tokens in write.tokens:
            self.truth.left(self.record, planned_ns, sent_ns, tokens)
        if write.then:
            self._stop(write.then)
        else:
            self._plan(next(self.writes))

    def _stop(self, then: str) -> None:
        if then in ("close", "reset"):
            self.connection.on_lost = None
        if then == "end":
            self.connection.end()
        elif then == "close":
            self.connection.close()
        elif then == "reset":
            self.connection.reset()

    def _on_lost(self) -> None:
        self.lost = True
        if self.record.outcome in ("length", "stop"):
            self.record.outcome = "client_gone"
