"""Content events of raw rows as flat arrays, and the tokens that fall into an interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from loadtest.client.rows import Ints, Rows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Events:
    """All content events: arrival, the arrival before it in its request (itself for the first), tokens, request."""

    at_ns: Ints
    before_ns: Ints
    tokens: Ints
    request: Ints
    first: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Rows) -> Events:
        """The events of rows."""
        counts = np.diff(rows.offsets)
        first = np.zeros(len(rows.arrivals_ns), bool)
        first[rows.offsets[:-1][counts > 0]] = True
        before = np.roll(rows.arrivals_ns, 1)
        before[first] = rows.arrivals_ns[first]
        return cls(rows.arrivals_ns, before, rows.event_tokens, np.repeat(np.arange(len(rows)), counts), first)

    def credit(self, start_ns: int, end_ns: int) -> float:
        """Tokens that fall into an interval, those of an event that straddles an edge shared by time."""
        near = (self.at_ns >= start_ns) & (self.before_ns < end_ns)
        at, before, tokens = self.at_ns[near], self.before_ns[near], self.tokens[near]
        gap = at - before
        inside = np.minimum(at, end_ns) - np.maximum(before, start_ns)
        point = (at >= start_ns) & (at < end_ns)
        return float(tokens @ np.where(gap > 0, inside / np.maximum(gap, 1), point))

    def paces_ns(self, start_ns: int, end_ns: int) -> Floats:
        """Nanoseconds a token of each request that has events, beside its first, in an interval."""
        gaps = ~self.first & (self.at_ns >= start_ns) & (self.at_ns < end_ns)
        waited = np.bincount(self.request[gaps], (self.at_ns - self.before_ns)[gaps])
        tokens = np.bincount(self.request[gaps], self.tokens[gaps])
        return np.asarray(waited[tokens > 0] / tokens[tokens > 0])

    def series(self, edges: Ints) -> Floats:
        """Tokens credited between consecutive edges."""
        return np.array([self.credit(int(a), int(b)) for a, b in pairwise(edges)])


def first_and_last(rows: Rows) -> tuple[Ints, Ints]:
    """Arrival of each request's first and last content event; -1 where there is none."""
    has = np.diff(rows.offsets) > 0
    first, last = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    first[has] = rows.arrivals_ns[rows.offsets[:-1][has]]
    last[has] = rows.arrivals_ns[rows.offsets[1:][has] - 1]
    return first, last
