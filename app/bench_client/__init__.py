"""Other load clients beside ours on one clocked mock: do they agree with the truth, and what does it cost them?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.bench_client.accuracy import measure_rates
from app.bench_client.compare import ITL_MS, LOAD, Comparison, compare_clients
from app.bench_client.mock import check_conformance
from app.bench_client.table import write_table

__all__ = [
    "Comparison",
    "bench_clients",
    "check_conformance",
    "compare_clients",
    "write_table",
]


def bench_clients(say: Callable[[str], None] = lambda text: None) -> Path:
    """Measures all clients and our own stamps at rising rates; gives the path of the committed table."""
    found = compare_clients(say=say)
    return write_table(found, LOAD, ITL_MS, rates=measure_rates(say=say))
