from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.errors import RecordsError
from app.report.streams import GAP_EDGES_MS, pooled_gaps, read_stream
from loadtest.client.rows import write_load, write_rows
from tests.app.report.made_campaign import make_row

SECOND = 1_000_000_000


def write(folder: Path, *, scale: float = 1.0, tokens: int = 1) -> Path:
    """Two requests of level 2: a token every 10 ms for 2 s, the second 5 ms later; the window is the second second."""
    rows = []
    for user in range(2):
        sent = 100 * SECOND + user * 5_000_000
        row = make_row(user, 2, 0, sent, [sent + (i + 1) * 10_000_000 for i in range(200)])
        rows.append(replace(row, event_tokens=[tokens] * 200))
    write_rows(folder, rows)
    level = {"concurrency": 2, "window_start_ns": 101 * SECOND, "window_end_ns": 102 * SECOND, "reasons": []}
    write_load(folder, {"levels": [level], "time_scale": scale})
    return folder


def test_rate_is_tokens_per_engine_second(tmp_path: Path) -> None:
    stream = read_stream(0, 0, "v1", write(tmp_path), 1.0)
    assert stream.rate[1] == pytest.approx(200, abs=4)


def test_tokens_of_an_event_count_all(tmp_path: Path) -> None:
    stream = read_stream(0, 0, "v1", write(tmp_path, tokens=3), 1.0)
    assert stream.rate[1] == pytest.approx(600, abs=12)
    assert stream.tokens_per_event == 3


def test_time_scale_stretches_time_and_keeps_tokens(tmp_path: Path) -> None:
    stream = read_stream(0, 0, "v1", write(tmp_path), 10.0)
    assert stream.rate[10] == pytest.approx(20, abs=2)
    assert stream.windows[0].begin_s == pytest.approx(10)


def test_gaps_are_those_inside_the_window_of_one_request(tmp_path: Path) -> None:
    counts = read_stream(0, 0, "v1", write(tmp_path), 1.0).gaps[2]
    place = int(np.flatnonzero(counts)[0])
    assert np.count_nonzero(counts) == 1
    assert GAP_EDGES_MS[place] <= 10 < GAP_EDGES_MS[place + 1]
    assert counts.sum() == pytest.approx(200, abs=2)


def test_gap_bins_are_one_percent_wide() -> None:
    ratios = GAP_EDGES_MS[1:] / GAP_EDGES_MS[:-1]
    assert math.isclose(ratios.max(), 1 + 1 / 64, rel_tol=1e-6)


def test_level_that_never_had_a_window_is_left_out(tmp_path: Path) -> None:
    write(tmp_path)
    begun = {"concurrency": 4, "window_start_ns": 0, "window_end_ns": 0, "reasons": ["not filled"]}
    level = {"concurrency": 2, "window_start_ns": 101 * SECOND, "window_end_ns": 102 * SECOND, "reasons": []}
    write_load(tmp_path, {"levels": [level, begun], "time_scale": 1.0})
    assert [w.concurrency for w in read_stream(0, 0, "v1", tmp_path, 1.0).windows] == [2]


def test_gaps_of_starts_are_pooled_by_variant_and_level(tmp_path: Path) -> None:
    stream = read_stream(0, 0, "v1", write(tmp_path), 1.0)
    pooled = pooled_gaps([stream, replace(stream, start=1), replace(stream, variant="v2")])
    assert pooled["v1", 2].sum() == 2 * pooled["v2", 2].sum() > 0


@pytest.mark.parametrize("spoil", ["torn", "missing"])
def test_rows_that_cannot_be_read_are_named(tmp_path: Path, spoil: str) -> None:
    path = write(tmp_path) / "rows.parquet"
    if spoil == "torn":
        path.write_bytes(path.read_bytes()[:200])
    else:
        path.unlink()
    with pytest.raises(RecordsError, match=r"rows\.parquet cannot be drawn"):
        read_stream(0, 0, "v1", tmp_path, 1.0)


def test_step_that_straddles_two_bins_counts_in_both(tmp_path: Path) -> None:
    sent = 100 * SECOND
    stamps = [sent + (i + 1) * 130_000_000 for i in range(60)]
    write_rows(tmp_path, [make_row(0, 1, 0, sent, stamps)])
    level = {"concurrency": 1, "window_start_ns": sent, "window_end_ns": stamps[-1], "reasons": []}
    write_load(tmp_path, {"levels": [level], "time_scale": 1.0})
    inner = read_stream(0, 0, "v1", tmp_path, 1.0).rate[1:-1]
    assert inner == pytest.approx(np.full(len(inner), 1 / 0.13), rel=1e-6)
