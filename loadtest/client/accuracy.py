"""How true a client's stamps are: its rows against the clocked mock's own record of when each token left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.client.rows import Rows


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors against the truth (0.01 = 1 %), lag of arrivals behind sendings, and how much was compared."""

    mean_itl: float
    p99_itl: float
    output_rate: float
    ttft_ms: float
    lag_p50_ms: float
    lag_p99_ms: float
    requests: int
    events: int


def accuracy(rows: Rows, truth: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> Accuracy:
    """Compares what arrived with what was sent, event by event, for requests wholly inside an interval.

    Requests are matched by the digest of their prompt. ttft_ms is the median excess of the client's TTFT over the
    time from its sending to the mock's first token; output_rate compares tokens over each request's own span.
    """
    sent = {t["prompt_sha256"]: t for t in truth}
    gaps, true_gaps, lags, first, rates = [], [], [], [], []
    for i, digest in enumerate(rows.prompt_sha256):
        inside = rows.sent_ns[i] >= start_ns and rows.ended_ns[i] <= end_ns
        arrivals = rows.arrivals_ns[rows.offsets[i] : rows.offsets[i + 1]]
        if not inside or rows.error_kind[i] or digest not in sent or len(arrivals) < 2:
            continue
        left = np.array(sent[digest]["sent_ns"], np.int64)
        gaps.append(np.diff(arrivals))
        true_gaps.append(np.diff(left))
        lags.append(arrivals - left)
        first.append((arrivals[0] - left[0]) / 1e6)
        rates.append((left[-1] - rows.sent_ns[i]) / (arrivals[-1] - rows.sent_ns[i]) - 1)
    seen, true, lag = (np.concatenate(x) if x else np.zeros(0) for x in (gaps, true_gaps, lags))
    return Accuracy(
        mean_itl=float(seen.mean() / true.mean() - 1),
        p99_itl=float(np.percentile(seen, 99) / np.percentile(true, 99) - 1),
        output_rate=float(np.mean(rates)),
        ttft_ms=float(np.median(first)),
        lag_p50_ms=float(np.percentile(lag, 50) / 1e6),
        lag_p99_ms=float(np.percentile(lag, 99) / 1e6),
        requests=len(gaps),
        events=len(seen) + len(gaps),
    )


def read_truth(path: Path) -> list[dict[str, Any]]:
    """The records of the file that the clocked mock leaves when it stops."""
    with np.load(path) as data:
        columns = {name: data[name] for name in data.files}
    ends = np.cumsum(columns["events"])
    starts = ends - columns["events"]
    return [
        {
            "prompt_sha256": str(columns["prompt_sha256"][i]),
            "received_ns": int(columns["received_ns"][i]),
            "sent_ns": columns["sent_ns"][a:b],
            "planned_ns": columns["planned_ns"][a:b],
            "tokens": columns["tokens"][a:b],
        }
        for i, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]
