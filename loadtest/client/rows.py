"""The raw record of one start: a row a request with every token's arrival, in one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from app.errors import RecordsError
from loadtest.whole import whole

SCHEMA = 1
ROWS, LOAD = "rows.parquet", "load.json"
GROUP_ROWS = 2048
Ints = npt.NDArray[np.int64]

_COLUMNS = pa.schema(
    [
        ("user", pa.int32()),
        ("concurrency", pa.int32()),
        ("sequence", pa.int32()),
        ("worker", pa.int32()),
        ("prompt_sha256", pa.string()),
        ("scheduled_ns", pa.int64()),
        ("sent_ns", pa.int64()),
        ("ended_ns", pa.int64()),
        ("arrivals_ns", pa.list_(pa.int64())),
        ("event_tokens", pa.list_(pa.int32())),
        ("token_source", pa.string()),
        ("silent_tokens", pa.int32()),
        ("glued", pa.int32()),
        ("requested_tokens", pa.int32()),
        ("usage_tokens", pa.int32()),
        ("prompt_tokens", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("status", pa.int32()),
        ("error_kind", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Row:
    """One request. Stamps are CLOCK_MONOTONIC nanoseconds; -1 counts were not reported by the server.

    scheduled_ns: when an open loop meant to send it; the sending time itself in a closed loop. error_kind is empty for
    a request that did what was promised.
    """

    user: int
    concurrency: int
    sequence: int
    worker: int
    prompt_sha256: str
    scheduled_ns: int
    sent_ns: int
    ended_ns: int
    arrivals_ns: Sequence[int]
    event_tokens: Sequence[int]
    token_source: str
    silent_tokens: int
    glued: int
    requested_tokens: int
    usage_tokens: int
    prompt_tokens: int
    cached_tokens: int
    finish_reason: str
    status: int
    error_kind: str
    error: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as arrays: one value a request; all content events flat, request i owning offsets[i]:offsets[i + 1]."""

    user: Ints
    concurrency: Ints
    sequence: Ints
    worker: Ints
    scheduled_ns: Ints
    sent_ns: Ints
    ended_ns: Ints
    silent_tokens: Ints
    glued: Ints
    requested_tokens: Ints
    usage_tokens: Ints
    prompt_tokens: Ints
    cached_tokens: Ints
    status: Ints
    prompt_sha256: tuple[str, ...]
    finish_reason: tuple[str, ...]
    token_source: tuple[str, ...]
    error_kind: tuple[str, ...]
    error: tuple[str, ...]
    offsets: Ints
    arrivals_ns: Ints
    event_tokens: Ints

    def __len__(self) -> int:
        return len(self.user)


def write_rows(folder: Path, rows: Iterable[Row]) -> Path:
    """Writes rows.parquet in one piece: a reader sees the whole file or none. Takes the rows a group at a time."""
    left = iter(rows)
    with whole(folder / ROWS) as out, pq.ParquetWriter(out, _COLUMNS, compression="zstd", **_encodings()) as writer:
        while group := list(islice(left, GROUP_ROWS)):
            writer.write_table(table_of(group))
    return folder / ROWS


def write_table(folder: Path, table: pa.Table) -> Path:
    """Writes a rows table as rows.parquet, in one piece."""
    with whole(folder / ROWS) as out:
        pq.write_table(table, out, compression="zstd", **_encodings())
    return folder / ROWS


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as a table, column by column."""
    return pa.table({f.name: [getattr(r, f.name) for r in rows] for f in fields(Row)}, schema=_COLUMNS)


def read_rows(folder: Path) -> Rows:
    """Reads a start's rows; RecordsError tells a missing file from a torn one."""
    path = folder / ROWS
    if not path.exists():
        torn = (folder / f"{ROWS}.part").exists()
        what = "only a partly written file is there" if torn else "there is none"
        raise RecordsError(f"{path}: no rows, {what}; run the block again")
    try:
        table = pq.read_table(path, memory_map=False)
        return rows_of(table)
    except (pa.ArrowException, OSError, KeyError, TypeError) as e:
        raise RecordsError(f"{path}: torn or foreign rows ({e}); run the block again") from e


def rows_of(table: pa.Table) -> Rows:
    """Array views of a rows table."""
    lists = {n: table.column(n).combine_chunks() for n in ("arrivals_ns", "event_tokens")}
    offsets = _ints(lists["arrivals_ns"].offsets) if len(table) else np.zeros(1, np.int64)
    columns: dict[str, Any] = {}
    for field in fields(Rows):
        if field.name in lists:
            columns[field.name] = _ints(lists[field.name].flatten())
        elif field.name != "offsets":
            column = table.column(field.name)
            columns[field.name] = tuple(column.to_pylist()) if pa.types.is_string(column.type) else _ints(column)
    return Rows(offsets=offsets - offsets[0], **columns)


def write_load(folder: Path, load: Mapping[str, Any]) -> Path:
    """Writes load.json, levels and guards of the start, in one piece."""
    with whole(folder / LOAD) as out:
        out.write((json.dumps({"schema": SCHEMA, **load}, indent=1) + "\n").encode())
    return folder / LOAD


def read_load(folder: Path) -> dict[str, Any]:
    """Reads load.json; RecordsError when it is missing, torn or of another schema."""
    path = folder / LOAD
    try:
        data: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise RecordsError(f"{path}: no load record ({e}); run the block again") from e
    if data.get("schema") != SCHEMA:
        raise RecordsError(f"{path}: schema {data.get('schema')!r}; this version reads {SCHEMA}")
    return data


def _ints(column: Any) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column, np.int64)


def _encodings() -> dict[str, Any]:
    # Successive arrivals differ by milliseconds: delta packing takes a third of what zstd alone leaves.
    deltas = ("arrivals_ns.list.element", "sent_ns", "ended_ns", "scheduled_ns")
    texts = [f.name for f in _COLUMNS if pa.types.is_string(f.type)]
    return {"use_dictionary": texts, "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED")}
