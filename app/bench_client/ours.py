"""This lab's own driver among the clients: the same command line that a campaign uses."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from app.bench_client.tools import Load, Reported, Tool
from loadtest.client.rows import Rows, read_rows
from loadtest.measure.events import Events
from loadtest.order import LOCUSTFILE, StartOrder
from loadtest.plan import Lengths, WindowRules


def _arguments(home: Path, url: str, load: Load, tokenizer: Path, out: Path) -> list[str]:
    # About as many requests as the others send: a closed loop is measured by time, not by count.
    rounds = max(1, load.requests // load.streams)
    window_s = rounds * (0.05 + load.output_tokens * 0.02)
    rules = WindowRules(settle_s=0.1, window_s=max(0.5, window_s - 1.0), fill_timeout_s=60)
    lengths = Lengths(load.prompt_tokens, load.output_tokens)
    order = StartOrder(
        0, 0, "mock", "control", (load.streams,), f"bench/{load.streams}", url, out, lengths=lengths, window=rules
    )
    order.write(out / "order.json")
    argv = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary", "--host", url]
    return [*argv, "--decode-ab-order", str(out / "order.json")]


def _read(out: Path) -> Reported:
    rows = read_rows(out)
    return reported_of(rows)


def reported_of(rows: Rows) -> Reported:
    """The same figures as the others give, over all requests of a run."""
    events = Events.of(rows)
    starts, ends = rows.offsets[:-1], rows.offsets[1:]
    many = ends - starts > 1
    first, last = rows.arrivals_ns[starts[many]], rows.arrivals_ns[ends[many] - 1]
    counts = (ends - starts)[many]
    gaps = (events.at_ns - events.before_ns)[~events.first] / 1e6
    seconds = (last.max() - rows.sent_ns[many].min()) / 1e9
    return Reported(
        float(np.mean((first - rows.sent_ns[many]) / 1e6)),
        float(np.mean((last - first) / 1e6 / (counts - 1))),
        float(np.percentile(gaps, 99)),
        float(rows.event_tokens.sum() / seconds),
    )


OURS = Tool("decode-ab", (), _arguments, _read)
