"""How true our own driver's stamps are at rising rates, and what they cost: a committed table."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from app.bench_client.mock import clocked_mock, pinned
from app.environment import ROOT
from app.errors import LoadError
from loadtest.client.accuracy import Accuracy, accuracy, read_truth
from loadtest.client.rows import read_load, read_rows
from loadtest.order import LOCUSTFILE, StartOrder
from loadtest.plan import Lengths, WindowRules

STREAMS = 96
RATES = (50, 100, 200)
WINDOW_S = 12.0
REPEATS = 3
HEAD = "| tok/s per stream | mean ITL | p99 ITL | output rate | TTFT | lag p50 / p99 | CPU s per 100k | mock late p99 |"


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One rate: errors against the truth, CPU seconds per 100,000 tokens inside Locust, lateness of the mock itself."""

    rate: int
    found: Accuracy
    cpu_s_per_100k: float
    mock_late_p99_ms: float


def measure_rates(rates: Sequence[int] = RATES, say: Callable[[str], None] = lambda text: None) -> list[RatePoint]:
    """Runs 96 streams at each rate, all on one tick as a decode batch is; the worst case for a reader.

    Of three runs the one in which the mock itself was least late is kept: that is chosen blind to the client's errors.
    """
    points = []
    for rate in rates:
        say(f"{STREAMS} streams at {rate} tok/s each, {REPEATS} runs of {WINDOW_S:g} s")
        points.append(min((_measure(rate) for _ in range(REPEATS)), key=lambda p: p.mock_late_p99_ms))
    return points


def _measure(rate: int) -> RatePoint:
    with tempfile.TemporaryDirectory(prefix="decode-ab-accuracy-") as folder:
        truth_file, out = Path(folder) / "truth.npz", Path(folder) / "start"
        out.mkdir()
        shape = {"ttft_ms": 50.0, "itl_ms": 1000.0 / rate, "tick": True}
        with pinned(0), clocked_mock(shape, str(truth_file)) as url, pinned(1):
            _run(url, out, rate)
        rows, load, truth = read_rows(out), read_load(out), read_truth(truth_file)
    (level,) = load["levels"]
    begin, end = level["window_start_ns"], level["window_end_ns"]
    inside = int(((rows.arrivals_ns >= begin) & (rows.arrivals_ns < end)).sum())
    late = np.concatenate([(t["sent_ns"] - t["planned_ns"]) / 1e6 for t in truth])
    cost = float(level["guards"]["cpu_s"]) / inside * 1e5
    return RatePoint(rate, accuracy(rows, truth, level["filled_ns"], end), cost, float(np.percentile(late, 99)))


def _run(url: str, out: Path, rate: int) -> None:
    # Outputs of two seconds: several whole requests of every stream fall into the window.
    lengths, rules = Lengths(64, 2 * rate), WindowRules(settle_s=2.0, window_s=WINDOW_S, fill_timeout_s=60)
    StartOrder(0, 0, "mock", "control", (STREAMS,), f"accuracy/{rate}", url, out, lengths=lengths, window=rules).write(
        out / "order.json"
    )
    argv = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary", "--host", url]
    argv += ["--decode-ab-order", str(out / "order.json")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise LoadError(f"the load driver ended with exit code {done.returncode}: {done.stderr[-300:]}")


def rates_table(points: Sequence[RatePoint]) -> str:
    """The table in Markdown."""
    lines = [HEAD, "|" + "---|" * 8]
    for p in points:
        f = p.found
        cells = [f"{100 * f.mean_itl:+.3f} %", f"{100 * f.p99_itl:+.1f} %", f"{100 * f.output_rate:+.3f} %"]
        cells += [f"{f.ttft_ms:+.2f} ms", f"{f.lag_p50_ms:.2f} / {f.lag_p99_ms:.2f} ms"]
        cells += [f"{p.cpu_s_per_100k:.1f}", f"{p.mock_late_p99_ms:.1f} ms"]
        lines.append(f"| {p.rate} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rates_json(points: Sequence[RatePoint]) -> list[dict[str, object]]:
    """Plain data of the points."""
    return [asdict(p) for p in points]
