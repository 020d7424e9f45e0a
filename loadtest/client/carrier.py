"""Sends the requests of a start from one process: slots, prompts, client and the record of what came back."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent

from loadtest.client.connection import Exchange
from loadtest.client.guards import health_json
from loadtest.client.key import authorization
from loadtest.client.prompts import Prompt, PromptList
from loadtest.client.recorder import Recorder, Sent
from loadtest.client.rows import write_rows
from loadtest.client.slots import Lease, Slots, first_output_tokens
from loadtest.client.streams import StreamClient, http_request
from loadtest.order import StartOrder

# A server that refuses at once must not be asked again at once: the refusals would be the load.
FAILURE_PAUSE_S = 0.5
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class Carrier:
    """The sending side of one process. Users call `send_next` until it says False; a driver sets the levels."""

    def __init__(self, order: StartOrder, worker: int = 0, workers: int = 1) -> None:
        self.order = order
        self.prompts = PromptList.of(order)
        self.client = StreamClient(order.router_url)
        self._decode_only = order.window.decode_only
        self._headers = authorization(os.environ)
        self.slots = Slots(worker, workers)
        self.recorder = Recorder(order.out, worker)
        self.on_sent: Callable[[Sent], None] = lambda sent: None
        self._own = range(worker, max(order.concurrencies), workers)
        self._live: dict[int, Exchange] = {}
        self._streaming: set[int] = set()
        self._ready: dict[tuple[int, int, int], tuple[Prompt, int, bytes]] = {}
        self._arrivals = random.Random(f"{order.prompt_seed}/arrivals/{worker}")
        self._arrivals_per_s = (order.workload.rate_per_s or 0.0) * order.time_scale / workers
        self._next_arrival_ns = 0.0

    def begin(self) -> None:
        """Starts the reader and opens the connections."""
        self.client.start()
        self.client.open(self._own)

    def set_level(self, concurrency: int) -> None:
        """Begins a level; with decode alone, what the last one left in flight is cut."""
        if self._decode_only:
            self.client.cut()
            self._live.clear()
        self._streaming = {s for s, e in self._live.items() if _has_output(e)}
        self.slots.set_level(concurrency)

    def close(self) -> None:
        """Sends nothing more."""
        self.slots.close()

    def cut(self) -> None:
        """Ends what is in flight."""
        self.client.cut()

    def look(self) -> tuple[int, int]:
        """Requests in flight, and slots of the present level that have received output."""
        self._streaming |= {slot for slot, exchange in self._live.items() if _has_output(exchange)}
        concurrency = self.slots.concurrency
        streaming = sum(s < concurrency for s in self._streaming)
        if self._streaming and self._arrivals_per_s:
            streaming = self.slots.limit  # an open loop need not fill its slots
        return self.slots.in_flight, streaming

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
        if not self._decode_only:
            self._prepare(Lease(lease.concurrency, lease.slot, lease.sequence + 1, False))
        try:
            exchange.done.wait()
        finally:
            self._live.pop(lease.slot, None)
            self.slots.release(lease.slot)
        sent = Sent(lease, prompt, tokens, scheduled_ns, exchange)
        self.recorder.add(sent)
        self.on_sent(sent)
        if exchange.error_kind != "cut" and (exchange.error_kind or exchange.status != 200):
            gevent.sleep(FAILURE_PAUSE_S)
        return True

    @property
    def in_flight(self) -> list[Exchange]:
        """The exchanges under way."""
        return list(self._live.values())

    def finish(self, folder: Path, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Parses everything, writes the rows into a folder and gives the client's health over each span."""
        rows = self.recorder.rows(gevent.sleep)
        health = [health_json(self.client.meter.health(begin, end)) for begin, end in spans]
        self.client.close()
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(folder, rows)
        return health

    def _wait_for_turn(self) -> int:
        """Open loop: waits for the next arrival of the Poisson process and gives its time; 0 in a closed loop."""
        if not self._arrivals_per_s:
            return 0
        # A late driver does not shift the schedule: latency counts from the time a request was meant to be sent.
        gap_ns = self._arrivals.expovariate(self._arrivals_per_s) * 1e9
        self._next_arrival_ns = meant = (self._next_arrival_ns or time.monotonic_ns()) + gap_ns
        while (ahead_ns := meant - time.monotonic_ns()) > 0:
            gevent.sleep(ahead_ns / 1e9)
        return int(meant)

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
        if lease.fresh and not self._decode_only:
            tokens = first_output_tokens(order.prompt_seed, lease.concurrency, lease.slot, tokens)
        body = json.dumps(request_body(order, prompt.text, tokens)).encode()
        return prompt, tokens, http_request(order.router_url, PATHS[order.api], body, self._headers)


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


def _has_output(exchange: Exchange) -> bool:
    # The first read may hold no more than the response's head.
    return exchange.status == 200 and len(exchange.stamps) > 1
