"""One request on the wire: turns the engine's tokens into bytes, stamped as they leave."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from app.engine.sim.clock import WallClock
from app.engine.sim.generation import Generation
from app.engine.sim.protocol import Connection, frame
from app.engine.sim.scheduler import Job
from app.engine.sim.streams import DONE, error_body, error_event, renderer, word, word_seed
from app.engine.sim.truth import Record, Truth

LAST_CHUNK = b"0\r\n\r\n"


class Answer:
    """Streams or collects one answer. The head goes out with the first token, as SGLang does.

    on_closed(answer) is called once, when the answer is complete, failed, or its client is gone.
    """

    def __init__(
        self,
        generation: Generation,
        connection: Connection,
        clock: WallClock,
        truth: Truth,
        received_ns: int,
        cache_report: bool,
    ) -> None:
        self.generation = generation
        self._connection, self._clock, self._truth = connection, clock, truth
        self._renderer = renderer(generation)
        self._cache_report = cache_report
        self._seed = word_seed(generation.prompt_sha256)
        self._texts: list[str] = []
        self._begun = False
        self._next = b""
        self._sent_ns, self._planned_s = 0, 0.0
        self.open = True
        self.on_gone: Callable[[Answer], None] = lambda _: None
        self.record = truth.open(
            Record(
                rid=generation.rid,
                prompt_sha256=generation.prompt_sha256,
                user=generation.user,
                shape="",
                prompt_tokens=len(generation.prompt),
                requested_tokens=generation.max_tokens,
                received_ns=received_ns,
            )
        )
        connection.on_lost = self._lost

    def prepare(self, job: Job) -> None:
        """Renders the next token's chunk, so that a batch leaves in one burst; books the last one's stamp."""
        self._book()
        if self.open and self.generation.stream:
            self._next = self._chunk(job, job.produced + 1)

    def token(self, job: Job, when_s: float) -> None:
        """One more token, planned for engine time when_s."""
        if not self.open:
            return
        if self.generation.stream:
            self._begin()
            chunk, self._next = self._next or self._chunk(job, job.produced), b""
            self._sent_ns = self._connection.send(chunk)
            self._planned_s = when_s
        else:
            self._texts.append(word(self._seed, job.produced - 1))
        if job.finished:
            self.finish(job, job.finish)

    def finish(self, job: Job, reason: str) -> None:
        """Ends the answer after its last token, or early with reason abort."""
        if not self.open:
            return
        self.open = False
        self._book()
        self.record.outcome, self.record.cached_tokens = reason, job.cached_tokens
        cached = job.cached_tokens if self._cache_report or self.generation.api == "generate" else 0
        if not self.generation.stream:
            body = self._renderer.whole("".join(self._texts), job.produced, reason, cached)
            self._connection.reply(HTTPStatus.OK, body)
            return
        self._begin()
        if reason == "abort":
            self._connection.send_chunk(self._renderer.content("", job.produced, reason))
        self._connection.send(frame(self._renderer.closing(job.produced, cached)) + LAST_CHUNK)
        self._connection.finished()

    def fail(self, message: str, status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        """Ends the answer in error: an event inside the 200 stream, or the status itself when nothing is streamed."""
        if not self.open:
            return
        self.open = False
        self._book()
        self.record.outcome = f"error: {message}"
        if not self.generation.stream:
            self._connection.reply(status, error_body(message, status.name, int(status)))
            return
        self._begin(opening=False)
        self._connection.send(frame(error_event(message, status.name, int(status))) + frame(DONE) + LAST_CHUNK)
        self._connection.finished()

    def _chunk(self, job: Job, tokens: int) -> bytes:
        finish = job.finish if tokens >= job.target else None
        return frame(self._renderer.content(word(self._seed, tokens - 1), tokens, finish))

    def _book(self) -> None:
        if self._sent_ns:
            self._truth.left(self.record, self._clock.monotonic_ns(self._planned_s), self._sent_ns, 1)
            self._sent_ns = 0

    def _begin(self, opening: bool = True) -> None:
        if self._begun:
            return
        self._begun = True
        self._connection.begin_stream()
        first = self._renderer.opening() if opening else b""
        if first:
            self._connection.send_chunk(first)

    def _lost(self) -> None:
        if self.open:
            self.open = False
            self._book()
            self.record.outcome = "client_gone"
            self.on_gone(self)
