"""Runs each client against the same clocked mock and holds what it reports against what the mock sent."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.bench_client.mock import clear_truth, clocked_mock, pinned, take_truth
from app.bench_client.ours import OURS
from app.bench_client.tokenizer import write_tokenizer
from app.bench_client.tools import TOOLS, Load, Reported, Tool
from app.errors import LabError, LoadError

LOAD = Load(streams=96, requests=192, prompt_tokens=64, output_tokens=200)
ITL_MS = 20.0
RUN_S = 180.0
REPEATS = 3
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One client: what it reported, the truth of the same requests, and its processor time without its start-up.

    mock_late_p99_ms: how late the mock itself was in that run. error: why there are no figures; empty when there are.
    """

    client: str
    reported: Reported | None
    truth: Reported | None
    cpu_s_per_100k: float | None
    requests: int
    error: str = ""
    mock_late_p99_ms: float | None = None


def compare_clients(
    tools: Sequence[Tool] = (OURS, *TOOLS),
    load: Load = LOAD,
    itl_ms: float = ITL_MS,
    say: Callable[[str], None] = lambda text: None,
) -> list[Comparison]:
    """Each client in turn, on one mock; a client that cannot be installed or fails is a row that says so.

    Mock and client have a core each. Of three runs the one in which the mock was least late is kept: chosen blind to
    what the client reported.
    """
    with tempfile.TemporaryDirectory(prefix="decode-ab-bench-") as folder:
        tokenizer = write_tokenizer(Path(folder) / "tokenizer")
        with pinned(0), clocked_mock({"ttft_ms": 50.0, "itl_ms": itl_ms}) as url, pinned(1):
            found = []
            for tool in tools:
                say(f"{tool.name}: installing if needed, then {load.requests} requests over {load.streams} streams")
                found.append(_one(tool, url, load, tokenizer, Path(folder)))
            return found


def _one(tool: Tool, url: str, load: Load, tokenizer: Path, folder: Path) -> Comparison:
    try:
        tool.install()
        small = Load(min(2, load.streams), min(2, load.requests), load.prompt_tokens, 8)
        idle_s, _, _ = _run(tool, url, small, tokenizer, folder / f"{tool.name}-small")
        runs = [_run(tool, url, load, tokenizer, folder / f"{tool.name}-{i}") for i in range(REPEATS)]
    except LabError as e:
        return Comparison(tool.name, None, None, None, 0, str(e))
    cpu_s, records, reported = min(runs, key=lambda run: late_p99_ms(run[1]))
    tokens = sum(sum(r["tokens"]) for r in records)
    per_100k = max(0.0, cpu_s - idle_s) / tokens * 1e5
    return Comparison(
        tool.name, reported, truth_of(records), per_100k, len(records), mock_late_p99_ms=late_p99_ms(records)
    )


def late_p99_ms(records: Sequence[Mapping[str, Any]]) -> float:
    """How late the mock's own sends were."""
    late = [np.subtract(r["sent_ns"], r["planned_ns"]) / 1e6 for r in records]
    return float(np.percentile(np.concatenate(late), 99))


def _run(tool: Tool, url: str, load: Load, tokenizer: Path, out: Path) -> tuple[float, list[dict[str, Any]], Reported]:
    out.mkdir(parents=True)
    clear_truth(url)
    before = _children_s()
    argv = tool.arguments(tool.home, url, load, tokenizer, out)
    environment = {**os.environ, **OFFLINE, "HF_HUB_CACHE": str(tokenizer / "hub"), "HOME": str(out)}
    try:
        done = subprocess.run(
            argv, cwd=out, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise LoadError(f"{tool.name} did not run: {e}") from e
    cpu_s = _children_s() - before
    records = [r for r in take_truth(url) if r["sent_ns"]]
    try:
        reported = tool.read(out)
    except (OSError, ValueError, KeyError, StopIteration, IndexError) as e:
        last = ((done.stderr or done.stdout).strip().splitlines() or ["no output"])[-1][:200]
        raise LoadError(f"{tool.name} left no result ({type(e).__name__}); exit code {done.returncode}: {last}") from e
    return cpu_s, records, reported


def truth_of(records: Sequence[Mapping[str, Any]]) -> Reported:
    """What a perfect client would have reported of these requests."""
    whole = [r for r in records if len(r["sent_ns"]) > 1]
    sent = [np.array(r["sent_ns"], np.int64) for r in whole]
    tokens = [sum(r["tokens"]) for r in whole]
    ttft = [(s[0] - r["received_ns"]) / 1e6 for s, r in zip(sent, whole, strict=True)]
    tpot = [(s[-1] - s[0]) / 1e6 / (n - 1) for s, n in zip(sent, tokens, strict=True)]
    gaps = np.concatenate([np.diff(s) for s in sent]) / 1e6
    seconds = (max(s[-1] for s in sent) - min(r["received_ns"] for r in whole)) / 1e9
    return Reported(float(np.mean(ttft)), float(np.mean(tpot)), float(np.percentile(gaps, 99)), sum(tokens) / seconds)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
