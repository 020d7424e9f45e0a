"""Raw rows binned for drawing: tokens per second over each start, and the distribution of gaps inside the windows.

Rows are read by columns in batches, so a million requests need neither a gigabyte nor ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.errors import RecordsError
from app.records import read_json

BATCH_ROWS = 4096
READERS = 2
MOST_BINS = 300
LEAST_BIN_S = 0.5
# A gap's bin is the top of its float32 pattern: 64 bins an octave, found by a shift where a logarithm would be slow.
_SHIFT = 17
_FIRST = int(np.float32(1e3).view(np.int32)) >> _SHIFT
_LAST = int(np.float32(1e12).view(np.int32)) >> _SHIFT
GAP_EDGES_MS: NDArray[np.float64] = (np.arange(_FIRST, _LAST + 2, dtype=np.int32) << _SHIFT).view(np.float32).astype(
    np.float64
) / 1e6


@dataclass(frozen=True, slots=True)
class Window:
    """A level's steady window, in engine seconds since the start's first request."""

    concurrency: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stream:
    """One start, binned: tokens per engine second in bins of bin_s, and counts of gaps per level over GAP_EDGES_MS."""

    block: int
    start: int
    variant: str
    bin_s: float
    rate: NDArray[np.float64]
    windows: tuple[Window, ...]
    gaps: Mapping[int, NDArray[np.int64]]
    tokens_per_event: int


def read_streams(
    starts: Iterable[tuple[int, int, str, Path]], time_scale: float
) -> tuple[list[Stream], tuple[str, ...]]:
    """Bins each (block, start, variant, folder); also says which could not be read and why."""
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda s: _stream_or_fault(s[0], s[1], s[2], s[3], time_scale), starts))
    return [s for s in found if isinstance(s, Stream)], tuple(f for f in found if isinstance(f, str))


def _stream_or_fault(block: int, start: int, variant: str, folder: Path, time_scale: float) -> Stream | str:
    try:
        return read_stream(block, start, variant, folder, time_scale)
    except RecordsError as e:
        return str(e)


def read_stream(block: int, start: int, variant: str, folder: Path, time_scale: float) -> Stream:
    """Bins the rows of one start by the level marks of its load.json."""
    path = folder / "rows.parquet"
    try:
        levels = [m for m in read_json(folder / "load.json")["levels"] if m["window_end_ns"]]
        with pq.ParquetFile(path) as source:
            first_ns = _first_sent_ns(source)
            last_ns = max((int(level["window_end_ns"]) for level in levels), default=first_ns)
            columns = ["concurrency", "arrivals_ns", *([] if _single(source) else ["event_tokens"])]
            bins = _Bins(first_ns, last_ns, time_scale, levels)
            for batch in source.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                bins.take(batch)
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as e:
        raise RecordsError(f"{path} cannot be drawn: {e}") from e
    return bins.stream(block, start, variant)


def _first_sent_ns(source: pq.ParquetFile) -> int:
    found = pc.min(source.read(["sent_ns"])["sent_ns"]).as_py()
    if found is None:
        raise ValueError("it holds no request")
    return int(found)


def _single(source: pq.ParquetFile) -> bool:
    """Whether the file's statistics say that every event carries one token, so that nothing need be read of them."""
    index = next((i for i, column in enumerate(source.schema) if column.path.startswith("event_tokens.")), None)
    if index is None:
        raise ValueError("it has no column event_tokens")
    groups = (source.metadata.row_group(g).column(index).statistics for g in range(source.metadata.num_row_groups))
    return all(s is not None and s.has_min_max and s.min == s.max == 1 for s in groups)


class _Bins:
    def __init__(self, first_ns: int, last_ns: int, time_scale: float, levels: Sequence[Mapping[str, Any]]) -> None:
        self._first_ns, self._scale = first_ns, time_scale
        span_s = (last_ns - first_ns) / 1e9 * time_scale
        self._bin_s = max(LEAST_BIN_S, span_s / MOST_BINS)
        self._width_ns = max(1, round(self._bin_s * 1e9 / time_scale))
        self._tokens = np.zeros(max(1, int((last_ns - first_ns) // self._width_ns) + 1))
        self._marks = {int(m["concurrency"]): (int(m["window_start_ns"]), int(m["window_end_ns"])) for m in levels}
        self._gaps = {c: np.zeros(_LAST - _FIRST + 1, np.int64) for c in self._marks}
        self._most = 1

    def take(self, batch: pa.RecordBatch) -> None:
        arrivals = batch.column("arrivals_ns")
        stamps = arrivals.flatten().to_numpy()
        tokens = batch.column("event_tokens").flatten().to_numpy() if "event_tokens" in batch.schema.names else None
        ends = np.cumsum(pc.fill_null(pc.list_value_length(arrivals), 0).to_numpy())
        self._count_tokens(stamps, tokens, ends)
        for level, first, last in _runs(batch.column("concurrency").to_numpy()):
            if level in self._marks:
                begin = int(ends[first - 1]) if first else 0
                self._count_gaps(level, stamps[begin : ends[last - 1]], ends[first : last - 1] - begin)

    def _count_tokens(
        self, stamps: NDArray[np.int64], tokens: NDArray[np.int32] | None, ends: NDArray[np.int64]
    ) -> None:
        if not stamps.size:
            return
        places = (stamps - self._first_ns) // self._width_ns
        # What arrives before the first bin or after the last window is not part of the picture.
        np.clip(places, -1, len(self._tokens), out=places)
        places += 1
        if tokens is not None:
            self._most = max(self._most, int(tokens.max()))
        counts = np.bincount(places, tokens, minlength=len(self._tokens) + 2).astype(float)
        self._share_edges(counts, stamps, tokens, places, ends)
        self._tokens += counts[1:-1]

    def _share_edges(
        self,
        counts: NDArray[np.float64],
        stamps: NDArray[np.int64],
        tokens: NDArray[np.int32] | None,
        places: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        # A step that straddles two bins counts in both by time; else bins of a few steps would show a beat.
        astride = places[1:] - places[:-1] == 1
        astride[ends[(ends > 0) & (ends < len(stamps))] - 1] = False
        late = np.flatnonzero(astride) + 1
        edges = self._first_ns + (places[late] - 1) * self._width_ns
        early = (edges - stamps[late - 1]) / (stamps[late] - stamps[late - 1])
        moved = early if tokens is None else early * tokens[late]
        counts -= np.bincount(places[late], moved, minlength=len(counts))
        counts += np.bincount(places[late] - 1, moved, minlength=len(counts))

    def _count_gaps(self, level: int, stamps: NDArray[np.int64], firsts: NDArray[np.int64]) -> None:
        begin, end = self._marks[level]
        gaps = np.diff(stamps)
        inside = (stamps[1:] >= begin) & (stamps[1:] <= end)
        # The step from one request's last token to the next request's first is no gap.
        inside[firsts[(firsts > 0) & (firsts < len(stamps))] - 1] = False
        scaled = gaps[inside].astype(np.float32) * np.float32(self._scale)
        places = (scaled.view(np.int32) >> _SHIFT) - _FIRST
        np.clip(places, 0, _LAST - _FIRST, out=places)
        self._gaps[level] += np.bincount(places, minlength=_LAST - _FIRST + 1)

    def stream(self, block: int, start: int, variant: str) -> Stream:
        windows = tuple(
            Window(c, self._engine_s(begin), self._engine_s(end)) for c, (begin, end) in self._marks.items()
        )
        rate = self._tokens / self._bin_s
        return Stream(block, start, variant, self._bin_s, rate, windows, self._gaps, self._most)

    def _engine_s(self, stamp_ns: int) -> float:
        return (stamp_ns - self._first_ns) / 1e9 * self._scale


def _runs(levels: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Each run of equal levels as (level, first row, row after the last)."""
    if levels.size:
        edges = np.flatnonzero(np.diff(levels)) + 1
        firsts = [0, *edges.tolist()]
        for first, last in zip(firsts, [*firsts[1:], len(levels)], strict=True):
            yield int(levels[first]), first, last


def pooled_gaps(streams: Iterable[Stream]) -> dict[tuple[str, int], NDArray[np.int64]]:
    """Gap counts of all starts together, by (variant, concurrency)."""
    pooled: dict[tuple[str, int], NDArray[np.int64]] = {}
    for stream in streams:
        for level, counts in stream.gaps.items():
            key = stream.variant, level
            pooled[key] = pooled[key] + counts if key in pooled else counts
    return pooled
