from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadtest.client.rows import write_load
from loadtest.plan import Plan
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan

ROWS, TOKENS = 1_000_000, 32
DRAW = """
import resource, sys
from pathlib import Path
from app.report import write_reports
write_reports(Path(sys.argv[1]))
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def swell(folder: Path, plan: Plan) -> None:
    """Replaces the rows of every start, so that the campaign holds a million requests."""
    starts = sorted(folder.glob("blocks/*/start-*"))
    each = ROWS // len(starts)
    rng = np.random.default_rng(1)
    for start in starts:
        sent = np.sort(rng.integers(0, 600 * 10**9, each))
        stamps = sent[:, None] + np.cumsum(rng.integers(8_000_000, 12_000_000, (each, TOKENS)), axis=1)
        offsets = pa.array(np.arange(0, each * TOKENS + 1, TOKENS, dtype=np.int32))
        columns = {
            "concurrency": np.sort(rng.choice(plan.concurrencies, each)).astype(np.int32),
            "sent_ns": sent,
            "arrivals_ns": pa.ListArray.from_arrays(offsets, stamps.ravel()),
            "event_tokens": pa.ListArray.from_arrays(offsets, rng.integers(1, 3, each * TOKENS, dtype=np.int32)),
        }
        pq.write_table(pa.table(columns), start / "rows.parquet", compression="zstd", use_dictionary=False)
        marks = [
            {"concurrency": c, "window_start_ns": i * 200 * 10**9 + 10**9, "window_end_ns": (i + 1) * 200 * 10**9}
            for i, c in enumerate(plan.concurrencies)
        ]
        write_load(start, {"levels": marks, "time_scale": 1.0})


@pytest.mark.slow
def test_million_requests_are_drawn_within_ten_seconds_and_a_gigabyte(tmp_path: Path) -> None:
    plan = make_plan()
    folder = make_campaign(tmp_path / "large", plan, draw_cells(plan))
    swell(folder, plan)
    drawn = subprocess.run([sys.executable, "-c", DRAW, str(folder)], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, drawn.stdout.split())
    # Processor seconds, so that neighbours on the machine do not count.
    assert seconds < 10
    assert megabytes < 1024
