"""The engine's own record of when each token left, planned and actual, against which a client can be checked."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAG_BUCKET_NS = 50_000
LAG_BUCKETS = 4_000
LATE_NS = 2_000_000
NS_PER_MS = 1_000_000


@dataclass(slots=True)
class Record:
    """One request. Per content event: tokens it carried, CLOCK_MONOTONIC ns when it was to leave and when it left."""

    rid: str
    prompt_sha256: str
    user: str
    shape: str
    prompt_tokens: int
    requested_tokens: int
    received_ns: int
    planned_ns: array[int] = field(default_factory=lambda: array("q"))
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("l"))
    cached_tokens: int = 0
    outcome: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data for /truth."""
        names = ("rid", "prompt_sha256", "user", "shape", "prompt_tokens", "requested_tokens", "received_ns")
        return {name: getattr(self, name) for name in (*names, "cached_tokens", "outcome")} | {
            "planned_ns": list(self.planned_ns),
            "sent_ns": list(self.sent_ns),
            "tokens": list(self.tokens),
        }


class Lag:
    """Distribution of actual minus planned over all events, in 0.05 ms buckets up to 200 ms; late: by over 2 ms."""

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * LAG_BUCKETS))
        self.count = 0
        self.late = 0

    def add(self, planned_ns: int, sent_ns: int) -> None:
        """Counts one event."""
        self._counts[min(max(sent_ns - planned_ns, 0) // LAG_BUCKET_NS, LAG_BUCKETS - 1)] += 1
        self.count += 1
        self.late += sent_ns - planned_ns > LATE_NS

    def quantile_ms(self, q: float) -> float:
        """Upper edge of the bucket that holds quantile q; 0 before the first token."""
        seen, wanted = 0, q * self.count
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen and seen >= wanted:
                return (bucket + 1) * LAG_BUCKET_NS / NS_PER_MS
        return 0.0


class Truth:
    """Records of requests; `keep` False keeps only the lag."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.records: list[Record] = []
        self.lag = Lag()

    def open(self, record: Record) -> Record:
        """Starts a record."""
        if self.keep:
            self.records.append(record)
        return record

    def left(self, record: Record, planned_ns: int, sent_ns: int, tokens: int) -> None:
        """Notes that a content event left."""
        self.lag.add(planned_ns, sent_ns)
        if self.keep:
            record.planned_ns.append(planned_ns)
            record.sent_ns.append(sent_ns)
            record.tokens.append(tokens)

    def to_json(self, since: int = 0, rid: str | None = None) -> list[dict[str, Any]]:
        """Records from index `since`, or those of one request id."""
        return [r.to_json() for r in self.records[since:] if rid is None or r.rid == rid]

    def write(self, path: Path) -> None:
        """Writes an NPZ: one array per field over requests, `events` of each, and flat planned_ns, sent_ns, tokens."""
        import numpy as np

        names = ("rid", "prompt_sha256", "user", "shape", "outcome")
        counts = ("prompt_tokens", "requested_tokens", "cached_tokens", "received_ns")
        columns: dict[str, Any] = {n: np.array([getattr(r, n) for r in self.records], dtype=str) for n in names}
        columns |= {n: np.array([getattr(r, n) for r in self.records], dtype=np.int64) for n in counts}
        columns["events"] = np.array([len(r.tokens) for r in self.records], dtype=np.int64)
        for n in ("planned_ns", "sent_ns", "tokens"):
            columns[n] = _flat([getattr(r, n) for r in self.records])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **columns)


def _flat(arrays: Sequence[array[int]]) -> Any:
    import numpy as np

    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(a, dtype=np.int64) for a in arrays)])
