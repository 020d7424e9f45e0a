"""Conducts one start: levels in their order, the servers' and GPUs' samples, and the record at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import gevent

from app.errors import ProofError
from loadtest.client.prompts import PromptList
from loadtest.client.rows import write_load
from loadtest.measure.gpu import GpuTelemetry, gpu_json
from loadtest.measure.server import Sample, Server, router_of, sample_json, servers_of
from loadtest.order import StartOrder
from loadtest.shape import Course, Mark, Schedule, Seen, advance, begin, close, mark_json

LOOK_S = 0.02
SAMPLE_S = 1.0
FLUSH_PATIENCE_S = 10.0
# The variant's name where nobody claims to know it.
AS_DEPLOYED = "as-deployed"


class Sender(Protocol):
    """What sends the requests: a carrier in this process, or the carriers of Locust's workers."""

    def begin(self) -> None: ...

    def set_level(self, concurrency: int) -> None: ...

    def close(self) -> None: ...

    def cut(self) -> None: ...

    def look(self) -> tuple[int, int]: ...

    def finish(self, folder: Path, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]: ...


class Driver:
    """Runs one order over a sender. `begin` starts it, `done` says when it is over, `finish` writes the record."""

    def __init__(self, order: StartOrder, sender: Sender) -> None:
        self.order, self.sender = order, sender
        self.schedule = Schedule.of(order)
        self.course: Course | None = None
        self.samples: list[Sample] = []
        self.flushes: list[dict[str, Any]] = []
        self.identity: dict[str, Any] = {}
        self.seen = Seen(0, 0, 0)
        self.on_second: Callable[[], None] = lambda: None
        self._servers = servers_of(order)
        self._read = [*self._servers, *router_of(order)]
        self._gpus = GpuTelemetry()
        self._greenlets: list[gevent.Greenlet] = []
        self._started_unix_s = 0.0

    def begin(self) -> None:
        """Empties the caches, starts the sender and enters the first level."""
        self._started_unix_s = time.time()
        # Without a decode server's address the host itself is asked: it may be the server.
        self.identity = Server("decode", self.order.decode_url or self.order.router_url).identity()
        check_identity(self.order, self.identity)
        self.flushes = [server.flush(FLUSH_PATIENCE_S, gevent.sleep) for server in self._servers]
        self.sender.begin()
        self._gpus.start()
        self._sample_all()
        self._enter(begin(self.schedule, time.monotonic_ns()))
        self._greenlets = [gevent.spawn(self._watch), gevent.spawn(self._sample_regularly)]

    @property
    def simulated(self) -> bool:
        """Whether a simulated engine has a part in it, by the order or by what the decode server says of itself."""
        return self.order.simulated or bool(self.identity.get("simulated"))

    @property
    def done(self) -> bool:
        """Whether every level has been visited and every request has ended."""
        return self.course is not None and self.course.phase == "done"

    def wait_for_change(self, concurrency: int, timeout_s: float) -> int:
        """The level's concurrency, after at most timeout_s of waiting for one that differs from the given."""
        deadline = time.monotonic() + timeout_s
        while not self.done and self.course is not None and self.course.concurrency == concurrency:
            if time.monotonic() >= deadline:
                break
            gevent.sleep(LOOK_S)
        return self.course.concurrency if self.course else 0

    def stop(self, reason: str) -> None:
        """Ends the start early: nothing more is sent, what is in flight is cut, the level under way is void."""
        if self.course is not None and not self.done:
            self._enter(close(self.course, time.monotonic_ns(), reason))

    def finish(self) -> None:
        """Writes rows.parquet and load.json; RecordsError when they cannot be written."""
        gevent.killall(self._greenlets)
        self._sample_all()
        self._gpus.stop()
        marks = self.course.marks if self.course else ()
        whole = (marks[0].entered_ns, time.monotonic_ns()) if marks else (0, 0)
        spans = [whole, *((mark.window_start_ns, mark.window_end_ns) for mark in marks)]
        guards, *by_level = self.sender.finish(self.order.out, spans)
        for server in self._read:
            server.close()
        write_load(self.order.out, self.load_json(marks, guards, by_level))

    def load_json(
        self, marks: Sequence[Mark], guards: Mapping[str, Any], by_level: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The record beside the rows: levels, guards, server and GPU samples, prompts' digest."""
        order = self.order
        levels = [mark_json(mark) | {"guards": dict(own)} for mark, own in zip(marks, by_level, strict=True)]
        digest = PromptList.of(order).sha256(order.concurrencies)
        return {
            "variant": order.variant,
            "block": order.block,
            "start": order.start,
            "simulated": self.simulated,
            "time_scale": order.time_scale,
            "started_unix_s": self._started_unix_s,
            "levels": levels,
            "guards": dict(guards),
            "identity": self.identity,
            "prompts": {"seed": order.prompt_seed, "sha256": digest},
            "window": asdict(order.window),
            "workload": asdict(order.workload) | {"dataset": str(order.workload.dataset or "")},
            "gpu": [gpu_json(s) for s in self._gpus.samples],
            "server": {"flushes": self.flushes, "samples": [sample_json(s) for s in self.samples]},
        }

    def _watch(self) -> None:
        while self.course is not None and not self.done:
            self.seen = Seen(time.monotonic_ns(), *self.sender.look())
            self._enter(advance(self.schedule, self.course, self.seen))
            gevent.sleep(LOOK_S)

    def _enter(self, course: Course) -> None:
        before, self.course = self.course, course
        if before is not None and before.phase == course.phase and len(before.marks) == len(course.marks):
            return
        if course.phase == "fill":
            self.sender.set_level(course.concurrency)
        elif course.phase in ("drain", "done"):
            self.sender.close()
        if course.phase == "done" or (course.phase == "drain" and self.order.window.decode_only):
            self.sender.cut()
        if "window" in (course.phase, before.phase if before else ""):
            gevent.spawn(self._sample_all)

    def _sample_regularly(self) -> None:
        while True:
            gevent.sleep(SAMPLE_S)
            self._sample_all()
            self.on_second()

    def _sample_all(self) -> None:
        self.samples += [server.sample() for server in self._read]


def check_identity(order: StartOrder, identity: Mapping[str, Any]) -> None:
    """Refuses to measure under a name what says it is something else."""
    runs = identity.get("variant")
    if runs and order.variant not in (runs, AS_DEPLOYED):
        raise ProofError(f"decode runs variant {runs!r}, not {order.variant!r}; switch the decode service first")
