"""Rows come back as they were written, and a torn file is never taken for a whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.errors import RecordsError
from loadtest.client.rows import LOAD, ROWS, Row, read_load, read_rows, write_load, write_rows

Loop = Callable[..., list[Row]]


def test_rows_are_restored_exactly(tmp_path: Path, loop: Loop) -> None:
    given = loop(concurrency=3, seconds=2)
    write_rows(tmp_path, given)
    rows = read_rows(tmp_path)
    assert len(rows) == len(given)
    for i, row in enumerate(given):
        part = slice(rows.offsets[i], rows.offsets[i + 1])
        assert rows.arrivals_ns[part].tolist() == list(row.arrivals_ns)
        assert (rows.user[i], rows.sent_ns[i], rows.prompt_sha256[i]) == (row.user, row.sent_ns, row.prompt_sha256)


def test_requests_without_output_own_no_events(tmp_path: Path, one_row: Callable[..., Row]) -> None:
    write_rows(tmp_path, [one_row(0, 1, 0, 5, []), one_row(0, 1, 1, 9, [11, 12])])
    assert read_rows(tmp_path).offsets.tolist() == [0, 0, 2]


def test_no_rows_at_all_are_rows_too(tmp_path: Path) -> None:
    write_rows(tmp_path, [])
    assert (len(read_rows(tmp_path)), read_rows(tmp_path).offsets.tolist()) == (0, [0])


def test_arrivals_take_few_bytes(tmp_path: Path, loop: Loop) -> None:
    rows = loop(concurrency=8, seconds=30)
    rng = np.random.default_rng(1)
    noisy = [r for r in rows for r.arrivals_ns[:] in [sorted(a + int(rng.integers(10**6)) for a in r.arrivals_ns)]]  # type: ignore[index]
    path = write_rows(tmp_path, noisy)
    assert path.stat().st_size < 5 * sum(len(r.arrivals_ns) for r in noisy)


@pytest.mark.parametrize("keep", [0, 10, 0.5, -4])
def test_torn_file_is_refused(tmp_path: Path, loop: Loop, keep: float) -> None:
    path = write_rows(tmp_path, loop())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(RecordsError, match="torn"):
        read_rows(tmp_path)


def test_part_left_by_a_crash_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{ROWS}.part").write_bytes(b"PAR1")
    with pytest.raises(RecordsError, match="partly written"):
        read_rows(tmp_path)


def test_missing_rows_say_so(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="there is none"):
        read_rows(tmp_path)


def test_foreign_parquet_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"user": [1]}), tmp_path / ROWS)
    with pytest.raises(RecordsError, match="foreign"):
        read_rows(tmp_path)


def test_full_disk_keeps_what_was_there(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path, loop(seconds=1))
    before = (tmp_path / ROWS).read_bytes()

    def no_space(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", no_space)
    with pytest.raises(RecordsError, match="No space left"):
        write_rows(tmp_path, loop(seconds=2))
    assert (tmp_path / ROWS).read_bytes() == before


def test_load_record_is_restored(tmp_path: Path) -> None:
    write_load(tmp_path, {"levels": []})
    assert read_load(tmp_path)["levels"] == []


@pytest.mark.parametrize("text", ["{", '{"schema": 99}', None])
def test_unreadable_load_record_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / LOAD).write_text(text)
    with pytest.raises(RecordsError, match=LOAD):
        read_load(tmp_path)
