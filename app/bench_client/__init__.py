"""Other load clients beside ours on one clocked mock: do they agree with the truth, and what does it cost them?"""

from __future__ import annotations

from app.bench_client.accuracy import measure_rates
from app.bench_client.compare import Comparison, compare_clients
from app.bench_client.mock import check_conformance, clocked_mock
from app.bench_client.table import write_table

__all__ = ["Comparison", "check_conformance", "clocked_mock", "compare_clients", "measure_rates", "write_table"]
