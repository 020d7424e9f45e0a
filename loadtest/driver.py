"""One start under load: admission, client, course, servers' samples and the record, tied to Locust's run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import gevent

from app.errors import ProofError
from loadtest.client import Exchange, StreamClient, http_request
from loadtest.gpu import GpuTelemetry, gpu_json
from loadtest.guards import health_json
from loadtest.order import StartOrder
from loadtest.prompts import Prompt, PromptList
from loadtest.recorder import Recorder, Sent
from loadtest.rows import write_load, write_rows
from loadtest.server import Sample, Server, sample_json, servers_of
from loadtest.shape import Course, Schedule, Seen, advance, begin, close, mark_json
from loadtest.slots import Lease, Slots, first_output_tokens

LOOK_S = 0.02
SAMPLE_S = 1.0
FLUSH_PATIENCE_S = 10.0
# A server that refuses at once must not be asked again at once: the refusals would be the load.
FAILURE_PAUSE_S = 0.5
# The variant's name where nobody claims to know it.
AS_DEPLOYED = "as-deployed"
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Driver:
    """Runs one order. `begin` starts it, users call `send_next` until it says False, `finish` writes the record."""

    def __init__(self, order: StartOrder, worker: int = 0) -> None:
        self.order = order
        self.prompts = PromptList.of(order)
        self.client = StreamClient(order.router_url)
        self.slots = Slots()
        self.recorder = Recorder(worker)
        self.schedule = Schedule.of(order)
        self.course: Course | None = None
        self.samples: list[Sample] = []
        self.flushes: list[dict[str, Any]] = []
        self.identity: dict[str, Any] = {}
        self.on_sent: Callable[[Sent], None] = lambda sent: None
        self.on_second: Callable[[], None] = lambda: None
        self._servers = servers_of(order)
        self._gpus = GpuTelemetry()
        self._live: dict[int, Exchange] = {}
        self._streaming: set[int] = set()
        self._ready: dict[tuple[int, int, int], tuple[Prompt, int, bytes]] = {}
        self._greenlets: list[gevent.Greenlet] = []
        self._started_unix_s = 0.0
        self._arrivals = random.Random(f"{order.prompt_seed}/arrivals")
        self._next_arrival_ns = 0.0

    def begin(self) -> None:
        """Empties the caches, starts the reader and enters the first level."""
        self._started_unix_s = time.time()
        # Without a decode server's address the host itself is asked: it may be the server.
        self.identity = Server("decode", self.order.decode_url or self.order.router_url).identity()
        check_identity(self.order, self.identity)
        self.flushes = [server.flush(FLUSH_PATIENCE_S, gevent.sleep) for server in self._servers]
        self.client.start()
        self.client.open(max(self.order.concurrencies))
        self._gpus.start()
        self._sample_all()
        self._enter(begin(self.schedule, time.monotonic_ns()))
        self._greenlets = [gevent.spawn(self._watch), gevent.spawn(self._sample_regularly)]

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

    def send_next(self) -> bool:
        """Sends one request when a slot is free and waits for its end; False when there is nothing more to send."""
        lease = self.slots.acquire()
        if lease is None:
            return False
        prompt, tokens, payload = self._prepared(lease)
        scheduled_ns = self._wait_for_turn()
        exchange = Exchange(lease.slot, payload)
        self._live[lease.slot] = exchange
        self.client.begin(exchange)
        self._prepare(Lease(lease.concurrency, lease.slot, lease.sequence + 1, False))
        try:
            exchange.done.wait()
        finally:
            self._live.pop(lease.slot, None)
            self.slots.release(lease.slot)
        sent = Sent(lease, prompt, tokens, scheduled_ns, exchange)
        self.recorder.add(sent)
        self.on_sent(sent)
        if exchange.error_kind or exchange.status != 200:
            gevent.sleep(FAILURE_PAUSE_S)
        return True

    def _wait_for_turn(self) -> int:
        """Open loop: waits for the next arrival of the Poisson process and gives its time; 0 in a closed loop."""
        rate = self.order.workload.rate_per_s
        if rate is None:
            return 0
        now = time.monotonic_ns()
        # A late driver does not shift the schedule: latency counts from the time a request was meant to be sent.
        gap_ns = self._arrivals.expovariate(rate * self.order.time_scale) * 1e9
        self._next_arrival_ns = meant = (self._next_arrival_ns or now) + gap_ns
        while (ahead_ns := meant - time.monotonic_ns()) > 0:
            gevent.sleep(ahead_ns / 1e9)
        return int(meant)

    def stop(self, reason: str) -> None:
        """Ends the start early: nothing more is sent, what is in flight is cut, the level under way is void."""
        if self.course is not None and not self.done:
            self._enter(close(self.course, time.monotonic_ns(), reason))

    def finish(self) -> None:
        """Parses everything and writes rows.parquet and load.json; RecordsError when they cannot be written."""
        gevent.killall(self._greenlets)
        self._sample_all()
        self._gpus.stop()
        rows = self.recorder.rows(gevent.sleep)
        load = self.load_json()
        self.client.close()
        for server in self._servers:
            server.close()
        self.order.out.mkdir(parents=True, exist_ok=True)
        write_rows(self.order.out, rows)
        write_load(self.order.out, load)

    def load_json(self) -> dict[str, Any]:
        """The record beside the rows: levels, guards, server samples, prompts' digest."""
        marks = self.course.marks if self.course else ()
        meter = self.client.meter
        levels = []
        for mark in marks:
            health = health_json(meter.health(mark.window_start_ns, mark.window_end_ns))
            levels.append(mark_json(mark) | {"guards": health})
        first, last = (marks[0].entered_ns, time.monotonic_ns()) if marks else (0, 0)
        order = self.order
        return {
            "variant": order.variant,
            "block": order.block,
            "start": order.start,
            "simulated": order.simulated,
            "time_scale": order.time_scale,
            "started_unix_s": self._started_unix_s,
            "levels": levels,
            "guards": health_json(meter.health(first, last)),
            "identity": self.identity,
            "prompts": {"seed": order.prompt_seed, "sha256": self.prompts.sha256(order.concurrencies)},
            "workload": asdict(order.workload) | {"dataset": str(order.workload.dataset or "")},
            "gpu": [gpu_json(s) for s in self._gpus.samples],
            "server": {"flushes": self.flushes, "samples": [sample_json(s) for s in self.samples]},
        }

    @property
    def in_flight(self) -> list[Exchange]:
        """The exchanges under way."""
        return list(self._live.values())

    def _watch(self) -> None:
        while self.course is not None and not self.done:
            for slot, exchange in list(self._live.items()):
                if _has_output(exchange):
                    self._streaming.add(slot)
            streaming = sum(s < self.course.concurrency for s in self._streaming)
            if self._streaming and self.order.workload.rate_per_s is not None:
                streaming = self.course.concurrency  # an open loop need not fill its slots
            seen = Seen(time.monotonic_ns(), self.slots.in_flight, streaming)
            self._enter(advance(self.schedule, self.course, seen))
            gevent.sleep(LOOK_S)

    def _enter(self, course: Course) -> None:
        before, self.course = self.course, course
        if before is not None and before.phase == course.phase and len(before.marks) == len(course.marks):
            return
        if course.phase == "fill":
            self._streaming = {s for s, e in self._live.items() if _has_output(e)}
            self.slots.set_level(course.concurrency)
        elif course.phase in ("drain", "done"):
            self.slots.close()
        if course.phase == "done":
            self.client.cut()
        if "window" in (course.phase, before.phase if before else ""):
            gevent.spawn(self._sample_all)

    def _sample_regularly(self) -> None:
        while True:
            gevent.sleep(SAMPLE_S)
            self._sample_all()
            self.on_second()

    def _sample_all(self) -> None:
        self.samples += [server.sample() for server in self._servers]

    def _prepared(self, lease: Lease) -> tuple[Prompt, int, bytes]:
        key = (lease.concurrency, lease.slot, lease.sequence)
        if lease.fresh or key not in self._ready:
            return self._request(lease)
        return self._ready.pop(key)

    def _prepare(self, lease: Lease) -> None:
        self._ready[(lease.concurrency, lease.slot, lease.sequence)] = self._request(lease)

    def _request(self, lease: Lease) -> tuple[Prompt, int, bytes]:
        order = self.order
        prompt = self.prompts.prompt(lease.concurrency, lease.slot, lease.sequence)
        tokens = prompt.output_tokens
        if lease.fresh:
            tokens = first_output_tokens(order.prompt_seed, lease.concurrency, lease.slot, tokens)
        body = json.dumps(request_body(order, prompt.text, tokens)).encode()
        return prompt, tokens, http_request(order.router_url, PATHS[order.api], body)


def check_identity(order: StartOrder, identity: Mapping[str, Any]) -> None:
    """Refuses to measure under a name what says it is something else."""
    runs = identity.get("variant")
    if runs and order.variant not in (runs, AS_DEPLOYED):
        raise ProofError(f"decode runs variant {runs!r}, not {order.variant!r}; switch the decode service first")


def _has_output(exchange: Exchange) -> bool:
    # The first read may hold no more than the response's head.
    return exchange.status == 200 and len(exchange.stamps) > 1


def request_body(order: StartOrder, prompt: str, output_tokens: int) -> dict[str, Any]:
    """A greedy streaming completion of exactly so many tokens, with its usage."""
    text: dict[str, Any] = {"prompt": prompt}
    if order.api == "chat":
        text = {"messages": [{"role": "user", "content": prompt}]}
    return text | {
        "model": order.model,
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
