"""Results of other load drivers, read into requests with times: sglang's bench client, AIPerf, GuideLLM.

genai-bench is recognised and refused: its files do not say when a request was sent. Formats as written by sglang 0.5.17
to 0.5.23, AIPerf 0.13, GuideLLM 0.8 and genai-bench 0.0.5.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.errors import RecordsError

# sglang's file has no send times; those rebuilt from its closed loop must end where the file says the run ended.
CLOSED_LOOP_TOLERANCE = 0.02
LIMIT_BYTES = 1024**3
MAX_CONCURRENCY = 100_000
MAX_TOKENS = 2**31 - 1
# What plain data of another form raises where it is read.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class ForeignRequest:
    """One completed request, in seconds on the run's clock: sent, first token, last token, done.

    gaps_s lie between events; empty where not recorded.
    """

    start_s: float
    first_s: float
    last_s: float
    end_s: float
    tokens: int
    prompt_tokens: int
    gaps_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """One run at one concurrency. unfinished_s: when requests were sent that did not end; faults void its cell."""

    tool: str
    source: str
    concurrency: int
    requests: tuple[ForeignRequest, ...]
    failures: int = 0
    unfinished_s: tuple[float, ...] = ()
    simulated: bool = False
    faults: tuple[str, ...] = ()


def read_runs(path: Path) -> list[ForeignRun]:
    """The runs of one file; RecordsError says what it lacks for a verdict, or that it is malformed."""
    if not path.is_file():
        raise RecordsError(f"{path} does not exist; correct the file column of import.csv")
    if path.stat().st_size > LIMIT_BYTES:
        raise RecordsError(f"{path} is larger than {LIMIT_BYTES // 2**30} GiB; leave the generated texts out of it")
    try:
        runs = _runs(path)
        for run in runs:
            _check(run)
    except OSError as e:
        raise RecordsError(f"{path} could not be read ({e.strerror}); see that this user may read it") from e
    except _MALFORMED as e:
        raise RecordsError(f"{path} is malformed ({type(e).__name__}: {e}); export it again") from e
    return runs


def _runs(path: Path) -> list[ForeignRun]:
    documents = _documents(path)
    first = documents[0]
    if "metadata" in first and "metrics" in first and "benchmarks" not in first:
        return [_aiperf(path, documents)]
    if "total_output_tokens" in first and "max_concurrency" in first:
        return [_sglang(path, d) for d in documents]
    if "benchmarks" in first:
        return [_guidellm(path, b) for b in first["benchmarks"]]
    if "aggregated_metrics" in first:
        raise _lacks(path, "genai-bench", "the time each request was sent (so no steady window can be cut)")
    if "input_config" in first or "request_throughput" in first:
        raise _lacks(path, "AIPerf summary", "single requests; give profile_export.jsonl of the same run")
    raise RecordsError(f"{path}: not a result of sglang's bench client, AIPerf, GuideLLM or genai-bench")


def _check(run: ForeignRun) -> None:
    if not 1 <= run.concurrency <= MAX_CONCURRENCY:
        raise ValueError(f"a concurrency of {run.concurrency}")
    for r in run.requests:
        # Chained so that "not a number" fails too; clocks of two sources may differ by rounding.
        if not -math.inf < r.start_s <= r.first_s <= r.end_s < math.inf or not r.start_s < r.end_s:
            raise ValueError(
                f"a request sent at {r.start_s} s, with its first token at {r.first_s} s and its end at {r.end_s} s"
            )
        if not r.first_s <= r.last_s < math.inf or not all(0 <= gap < math.inf for gap in r.gaps_s):
            raise ValueError(
                f"a request whose tokens do not follow one another (first {r.first_s} s, last {r.last_s} s)"
            )
        if not 0 < r.tokens <= MAX_TOKENS or not 0 <= r.prompt_tokens <= MAX_TOKENS:
            raise ValueError(f"a request of {r.prompt_tokens} prompt tokens and {r.tokens} output tokens")
    if not all(map(math.isfinite, run.unfinished_s)):
        raise ValueError("a request that was cut off at no time")


def _documents(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else [text]
    try:
        found = [json.loads(line) for line in lines]
    except json.JSONDecodeError as e:
        raise RecordsError(f"{path}: not JSON ({e}); export it again") from e
    if not found or not all(isinstance(d, dict) for d in found):
        raise RecordsError(f"{path}: holds no result")
    return found


def _lacks(path: Path, tool: str, *missing: str) -> RecordsError:
    return RecordsError(f"{path} ({tool}) lacks what a verdict needs: {'; '.join(missing)}")


def _sglang(path: Path, record: Mapping[str, Any]) -> ForeignRun:
    details = [k for k in ("input_lens", "output_lens", "ttfts", "itls", "errors") if k not in record]
    missing = [f"{', '.join(details)} (run it with --output-details)"] if details else []
    if not record["max_concurrency"]:
        missing.append("a fixed concurrency (run it with --max-concurrency)")
    # Written as a number, Infinity, or as a text by tools that keep to JSON.
    if str(record.get("request_rate")).lower() not in ("inf", "infinity"):
        missing.append(f"a closed loop (request rate was {record.get('request_rate')}, leave it out)")
    if missing:
        raise _lacks(path, "sglang", *missing)
    concurrency = int(record["max_concurrency"])
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ValueError(f"a concurrency of {concurrency}")
    failures = sum(bool(e) for e in record["errors"])
    faults = [f"{failures} requests failed at unknown times, so that the others cannot be placed"] if failures else []
    requests = tuple(r for r, error in zip(_closed_loop(record), record["errors"], strict=True) if not error)
    if not requests:
        raise _lacks(path, "sglang", "completed requests")
    ended = max(r.end_s for r in requests)
    if abs(ended / record["duration"] - 1) > CLOSED_LOOP_TOLERANCE:
        faults.append(f"requests fill {ended:.1f} s of a run of {record['duration']:.1f} s: pauses that the file hides")
    simulated = bool(_find(record.get("server_info"), "simulated"))
    return ForeignRun("sglang", str(path), concurrency, requests, failures, (), simulated, tuple(faults))


def _closed_loop(record: Mapping[str, Any]) -> tuple[ForeignRequest, ...]:
    """Send times rebuilt: requests start in file order, each when the earliest of the slots falls free."""
    slots = [0.0] * int(record["max_concurrency"])
    requests = []
    rows = zip(record["ttfts"], record["itls"], record["output_lens"], record["input_lens"], strict=True)
    for ttft, gaps, tokens, prompt_tokens in rows:
        start = heapq.heappop(slots)
        end = start + ttft + sum(gaps)
        requests.append(ForeignRequest(start, start + ttft, end, end, int(tokens), int(prompt_tokens), tuple(gaps)))
        heapq.heappush(slots, end)
    return tuple(requests)


def _aiperf(path: Path, records: Sequence[Mapping[str, Any]]) -> ForeignRun:
    measured = [r for r in records if r["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    cut = [r for r in measured if r["metadata"].get("was_cancelled")]
    failed = [r for r in measured if r.get("error") and r not in cut]
    whole = [r for r in measured if r not in cut and r not in failed]
    needed = ("time_to_first_token", "output_sequence_length", "input_sequence_length")
    missing = sorted({k for r in whole for k in needed if k not in r["metrics"]})
    if missing or not whole:
        raise _lacks(path, "AIPerf", f"{', '.join(missing) or 'completed requests'} (run it with --streaming)")
    requests = tuple(_aiperf_request(r) for r in whole)
    unfinished = tuple(r["metadata"]["request_start_ns"] / 1e9 for r in cut)
    usual = usual_in_flight(requests, unfinished)
    return ForeignRun("aiperf", str(path), usual, requests, len(failed), unfinished)


def _aiperf_request(record: Mapping[str, Any]) -> ForeignRequest:
    times, metrics = record["metadata"], record["metrics"]
    start = times["request_start_ns"] / 1e9
    first = start + _seconds(metrics["time_to_first_token"])
    gaps = metrics.get("inter_chunk_latency")
    scale = _seconds({"value": 1.0, "unit": gaps["unit"]}) if gaps else 1.0
    events = tuple(g * scale for g in gaps["value"]) if gaps else ()
    return ForeignRequest(
        start,
        first,
        first + sum(events) if events else times["request_end_ns"] / 1e9,
        times["request_end_ns"] / 1e9,
        int(metrics["output_sequence_length"]["value"]),
        int(metrics["input_sequence_length"]["value"]),
        events,
    )


def _seconds(metric: Mapping[str, Any]) -> float:
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
    if metric["unit"] not in units:
        raise RecordsError(f"time in {metric['unit']!r}; known: {', '.join(units)}")
    return float(metric["value"]) * units[metric["unit"]]


def _guidellm(path: Path, benchmark: Mapping[str, Any]) -> ForeignRun:
    groups = benchmark["requests"]
    whole = groups.get("successful") or []
    needed = ("request_start_time", "request_end_time", "time_to_first_token_ms", "output_tokens", "prompt_tokens")
    missing = sorted({k for r in whole for k in needed if r.get(k) is None})
    if missing or not whole:
        raise _lacks(path, "GuideLLM", f"{', '.join(missing) or 'completed requests'} (stream, and keep all requests)")
    requests = tuple(
        ForeignRequest(
            r["request_start_time"],
            r["request_start_time"] + r["time_to_first_token_ms"] / 1000,
            r["info"]["timings"]["last_token_iteration"] or r["request_end_time"],
            r["request_end_time"],
            r["output_tokens"],
            r["prompt_tokens"],
        )
        for r in whole
    )
    cut = groups.get("incomplete") or []
    unfinished = tuple(r["request_start_time"] for r in cut if r.get("request_start_time") is not None)
    usual = usual_in_flight(requests, unfinished)
    return ForeignRun("guidellm", str(path), usual, requests, len(groups.get("errored") or []), unfinished)


def usual_in_flight(requests: Iterable[ForeignRequest], unfinished_s: Iterable[float] = ()) -> int:
    """The number of requests that was under way for the longest time: the concurrency of a closed loop."""
    seconds = seconds_in_flight(requests, unfinished_s, -math.inf, math.inf)
    return max((n for n in seconds if n), key=lambda n: (seconds[n], n))


def seconds_in_flight(
    requests: Iterable[ForeignRequest], unfinished_s: Iterable[float], begin: float, end: float
) -> dict[int, float]:
    """For how many seconds of begin to end each number of requests was under way."""
    steps = [(s, 1) for s in unfinished_s]
    for r in requests:
        steps += [(r.start_s, 1), (r.end_s, -1)]
    steps.sort()
    seconds: dict[int, float] = defaultdict(float)
    level = 0
    for (time, step), (following, _) in pairwise(steps):
        level += step
        seconds[level] += max(0.0, min(following, end) - max(time, begin))
    return seconds


def _find(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return value[key] if key in value else next((f for v in value.values() if (f := _find(v, key))), None)
    if isinstance(value, list):
        return next((f for v in value if (f := _find(v, key))), None)
    return None
