"""Admission of requests: at most C in flight, each under a slot number that names its prompts."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass

from gevent.event import AsyncResult


@dataclass(frozen=True, slots=True)
class Lease:
    """Leave to send one request. fresh: the slot was empty when its level began, so its end must be staggered."""

    concurrency: int
    slot: int
    sequence: int
    fresh: bool


class Slots:
    """Hands out the slots 0..C-1 of the present level, lowest first; users are only their carriers.

    When a level has fewer slots than the last one, nothing is sent until enough requests have ended by themselves.
    """

    def __init__(self, worker: int = 0, workers: int = 1) -> None:
        # Of several workers each hands out every workers-th slot, so that together they never exceed the level.
        self._worker, self._workers = worker, workers
        self.concurrency = self.limit = 0
        self.closed = False
        self.held: set[int] = set()
        self._free: list[int] = []
        self._sequences: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._waiting: deque[AsyncResult[Lease | None]] = deque()

    @property
    def in_flight(self) -> int:
        """Slots handed out and not returned."""
        return len(self.held)

    def set_level(self, concurrency: int) -> None:
        """Begins a level; its sequences start at 0."""
        self.concurrency = concurrency
        self._sequences = {}
        own = range(self._worker, concurrency, self._workers)
        self.limit = len(own)
        self._free = [s for s in own if s not in self.held]
        self._fresh = set(self._free)
        self._grant()

    def acquire(self) -> Lease | None:
        """Waits for a slot; None when there will be no more."""
        if self.closed:
            return None
        result: AsyncResult[Lease | None] = AsyncResult()
        self._waiting.append(result)
        self._grant()
        lease: Lease | None = result.get()
        return lease

    def release(self, slot: int) -> None:
        """Returns a slot."""
        self.held.discard(slot)
        if slot < self.concurrency and slot % self._workers == self._worker:
            heapq.heappush(self._free, slot)
        self._grant()

    def close(self) -> None:
        """Admits nothing more; waiting users get None."""
        self.closed = True
        while self._waiting:
            self._waiting.popleft().set(None)

    def _grant(self) -> None:
        while self._waiting and self._free and len(self.held) < self.limit and not self.closed:
            slot = heapq.heappop(self._free)
            self.held.add(slot)
            sequence = self._sequences.get(slot, 0)
            self._sequences[slot] = sequence + 1
            fresh = slot in self._fresh
            self._fresh.discard(slot)
            self._waiting.popleft().set(Lease(self.concurrency, slot, sequence, fresh))


def first_output_tokens(seed: str, concurrency: int, slot: int, output_tokens: int) -> int:
    """Length of a fresh slot's first output: an even spread over one output, in a seeded order of slots.

    Without it the closed loop stays in lockstep: all requests end together and prefills come in waves.
    """
    order = list(range(concurrency))
    random.Random(f"{seed}/stagger/{concurrency}").shuffle(order)
    return max(1, round(output_tokens * (order[slot] + 1) / concurrency))
