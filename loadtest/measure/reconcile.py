"""Whether a window may count: exact work, full batch, a client that kept up, and a server that agrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest.client.rows import Ints, Rows
from loadtest.measure.events import Events, first_and_last
from loadtest.measure.inside import Inside
from loadtest.measure.server import Sample
from loadtest.plan import Plan
from loadtest.shape import Mark

MAX_FAILURE_SHARE = 0.01
MIN_IN_FLIGHT_SHARE = 0.97
MAX_CPU_SHARE = 0.9
# Events that share their read with another: beyond this share the path hands tokens over in bunches.
MAX_GLUED_SHARE = 0.25
# A request joins the batch between two steps, so at any moment a few wait for the step to end: that is no queue.
MAX_JOINING_SHARE = 0.05
# A stream that stands still takes its slot's tokens with it, and no counter of the server's tells.
MAX_SILENT_SHARE = 0.25
QUARTERS = 4
# What the server has counted and is on its way to the client may differ by so much time between a window's edges.
MAX_WAY_NS = 50_000_000
# What a machine busy with other work makes of the client.
LATE, SATURATED = "client late", "client saturated"
# What answers that are too short make of a window without prefill.
NOT_ALONE = "in a window of decode alone"
# An answer asked for is longer than the pace of one window makes needful: levels are filled while fewer streams run.
SPARE = 1.1


def check_rows(
    rows: Rows, inside: Inside, mark: Mark, begin: int, end: int, plan: Plan, closed: bool = True
) -> list[str]:
    """Faults of the work itself; only a closed loop promises its concurrency."""
    reasons = []
    requests, failed, short = (int(m.sum()) for m in (inside.ended, inside.failed, inside.short))
    if failed > MAX_FAILURE_SHARE * max(requests, 1):
        kinds = sorted({rows.error_kind[i] for i in np.flatnonzero(inside.failed)})
        reasons.append(f"{failed} of {requests} requests failed ({', '.join(kinds)})")
    if short:
        reasons.append(f"{short} of {requests} outputs had another length than asked")
    alone = plan.window.decode_only
    if alone and (other := int((inside.begun | inside.ended).sum())):
        more = _enough(rows, mark, begin, end)
        reasons.append(f"{other} requests began or ended {NOT_ALONE}; --lengths must ask for {more}")
    if not alone and not requests and not inside.begun.any():
        reasons.append("no request began or ended in the window")
    reasons += _check_prompts(rows, inside, alone)
    reasons += _check_silence(rows, begin, end)
    if closed:
        reasons += _check_concurrency(rows, mark, begin, end)
        reasons += _check_batch(rows, begin, end, plan)
    read = inside.present if alone else inside.ended
    glued = int(rows.glued[read].sum())
    events = int(np.diff(rows.offsets)[read].sum())
    if glued > MAX_GLUED_SHARE * max(events, 1):
        reasons.append(f"late reads, {glued / events:.0%} of the events came glued to another")
    return reasons


def answer_tokens(span: float, pace: float) -> int:
    """Tokens of an answer that outlasts a span at a pace, both of one unit of time; some spare, two digits."""
    tokens = math.ceil(SPARE * span / pace)
    step = int(10 ** max(0, len(str(tokens)) - 2))
    return math.ceil(tokens / step) * step


def check_guards(guard: Mapping[str, Any], plan: Plan) -> list[str]:
    """Whether the client itself kept up; a record without guards does not count."""
    lag, cpu = guard.get("loop_lag_p99_ms"), guard.get("cpu_share")
    if lag is None:
        return ["no record of the client's own lag"]
    reasons = []
    if lag > plan.window.max_loop_lag_ms:
        limit = plan.window.max_loop_lag_ms
        reasons.append(f"{LATE}, loop lag p99 {_above(lag, limit)} ms (limit {limit:g})")
    if cpu is not None and cpu > MAX_CPU_SHARE:
        reasons.append(f"{SATURATED}, {cpu:.0%} of a core (limit {MAX_CPU_SHARE:.0%})")
    return reasons


def _above(value: float, limit: float) -> str:
    """A value with so many digits, one at least, that it reads as above its limit."""
    shown = (f"{value:.{digits}f}" for digits in range(1, 7))
    return next((text for text in shown if float(text) > limit), repr(value))


def check_server(
    samples: Sequence[Sample],
    rows: Rows,
    credit: Callable[[int, int], float],
    mark: Mark,
    begin: int,
    end: int,
) -> list[str]:
    """Whether the servers' counters agree with the client and show no retraction, queue or cache hit."""
    reasons = []
    decode = [s for s in samples if s.role == "decode" and begin <= s.at_ns <= end]
    for role in sorted({s.role for s in samples}):
        read = [s for s in samples if s.role == role and begin <= s.at_ns <= end]
        if errors := [s.error for s in read if s.error]:
            reasons.append(f"{role} counters not read {len(errors)} times ({errors[0]})")
        reasons += _check_growth([s for s in read if not s.error], role)
        reasons += _check_refusals([s for s in read if not s.error])
    queued = [s.values.get("num_queue_reqs", 0) for s in decode if not s.error]
    if queued and np.median(queued) > 1 + MAX_JOINING_SHARE * mark.concurrency:
        reasons.append(f"decode queues, median {np.median(queued):g} requests waiting")
    reasons += _check_tokens([s for s in decode if not s.error], rows, credit, mark)
    return reasons


def decode_samples(samples: Sequence[Sample], begin: int, end: int) -> npt.NDArray[np.float64]:
    """The decode server's running requests at each reading inside a window."""
    inside = [s for s in samples if s.role == "decode" and begin <= s.at_ns <= end]
    return np.array([s.values["num_running_reqs"] for s in inside if "num_running_reqs" in s.values])


def overlap(starts: Ints, ends: Ints, begin: int, end: int) -> float:
    """Mean number of the intervals that are open between begin and end."""
    shared = np.minimum(ends, end) - np.maximum(starts, begin)
    return float(np.clip(shared, 0, None).sum() / (end - begin))


def peak(starts: Ints, ends: Ints) -> int:
    """Largest number of intervals open at once; one that ends as another begins does not overlap it."""
    at = np.concatenate([ends, starts])
    step = np.concatenate([-np.ones(len(ends), np.int64), np.ones(len(starts), np.int64)])
    order = np.lexsort((step, at))
    return int(np.cumsum(step[order]).max(initial=0))


def _enough(rows: Rows, mark: Mark, begin: int, end: int) -> str:
    """The answers that would last from the level's first output to the end of its window."""
    paces, (first, _) = Events.of(rows).paces_ns(begin, end), first_and_last(rows)
    if not len(paces):
        return "more"
    whole = mark.window_end_ns - first[first >= mark.entered_ns].min(initial=begin)
    return f"at least {answer_tokens(float(whole), float(np.median(paces))):,} tokens"


def _check_prompts(rows: Rows, inside: Inside, decode_only: bool) -> list[str]:
    reasons = []
    sent = inside.present if decode_only else inside.begun | inside.ended
    digests = [rows.prompt_sha256[i] for i in np.flatnonzero(sent)]
    if len(set(digests)) != len(digests):
        reasons.append("the same prompt was sent twice")
    cached = rows.cached_tokens[sent if decode_only else inside.begun]
    if (cached > 0).any():
        reasons.append(f"{int((cached > 0).sum())} prompts were served from the prefix cache")
    return reasons


def _check_silence(rows: Rows, begin: int, end: int) -> list[str]:
    """A stream, once begun, that gives nothing for a large part of the window: between events, or after its last."""
    counts = np.diff(rows.offsets)
    if not len(rows.arrivals_ns):
        return []
    last = np.zeros(len(rows.arrivals_ns), bool)
    last[rows.offsets[1:][counts > 0] - 1] = True
    after = np.roll(rows.arrivals_ns, -1)
    after[last] = rows.ended_ns[counts > 0]
    silent = np.minimum(after, end) - np.maximum(rows.arrivals_ns, begin)
    share = float(silent.max()) / (end - begin)
    return [f"a stream stood still for {share:.0%} of the window"] if share > MAX_SILENT_SHARE else []


def _check_concurrency(rows: Rows, mark: Mark, begin: int, end: int) -> list[str]:
    near = (rows.ended_ns > begin) & (rows.sent_ns < end)
    achieved = overlap(rows.sent_ns[near], rows.ended_ns[near], begin, end)
    top = peak(np.maximum(rows.sent_ns[near], begin), rows.ended_ns[near])
    if top > mark.concurrency:
        return [f"{top} requests in flight at C={mark.concurrency}"]
    if achieved < MIN_IN_FLIGHT_SHARE * mark.concurrency:
        return [f"{achieved:.2f} requests in flight on average at C={mark.concurrency}"]
    return []


def _check_batch(rows: Rows, begin: int, end: int, plan: Plan) -> list[str]:
    # The decode batch as the client sees it, by quarters: readings once a second are too few to judge a small batch.
    has = np.diff(rows.offsets) > 0
    first = rows.arrivals_ns[rows.offsets[:-1][has]]
    last = rows.arrivals_ns[rows.offsets[1:][has] - 1]
    # What the driver cut was in the batch until then, however long ago its last event came.
    cut = np.array([kind == "cut" for kind in rows.error_kind], bool)[has]
    last = np.where(cut, rows.ended_ns[has], last)
    edges = np.linspace(begin, end, QUARTERS + 1).astype(np.int64)
    batch = np.array([overlap(first, last, int(a), int(b)) for a, b in pairwise(edges)])
    share = float(batch.min() / np.median(batch)) if np.median(batch) > 0 else 0.0
    # One stream more or less, part of the time, is what a small closed loop does by itself.
    if share < plan.window.batch_share and np.median(batch) - batch.min() > 1:
        return [f"decode batch fell to {share:.0%} of its median"]
    return []


def _check_growth(samples: Sequence[Sample], role: str) -> list[str]:
    if len(samples) < 2:
        return []
    grown = {
        name: samples[-1].values[name] - samples[0].values.get(name, 0.0)
        for name in ("num_retracted_requests_total", "cached_tokens_total", "num_aborted_requests_total")
        if name in samples[-1].values
    }
    words = {
        "num_retracted_requests_total": "requests retracted",
        "cached_tokens_total": "prompt tokens from the prefix cache",
        "num_aborted_requests_total": "requests aborted",
    }
    return [f"{role}, {count:g} {words[name]}" for name, count in grown.items() if count > 0]


def _check_refusals(samples: Sequence[Sample]) -> list[str]:
    """Answers of the router that were no success, and its retries, which load prefill and decode once more."""
    if len(samples) < 2:
        return []
    first, last = samples[0].values, samples[-1].values
    reasons = []
    for name in sorted(last):
        grown = last[name] - first.get(name, 0.0)
        metric, _, status = name.partition(":")
        if grown > 0 and metric == "smg_http_responses_total" and not status.startswith("2"):
            reasons.append(f"router, {grown:g} answers with status {status}")
        if grown > 0 and metric.startswith("smg_worker_retries"):
            reasons.append(f"router, {grown:g} retries")
    return reasons


def _check_tokens(samples: Sequence[Sample], rows: Rows, credit: Callable[[int, int], float], mark: Mark) -> list[str]:
    name = "realtime_tokens_total:decode"
    if len(samples) < 2 or name not in samples[0].values:
        return []
    first, last = samples[0], samples[-1]
    served = last.values[name] - first.values[name]
    has = np.diff(rows.offsets) > 0
    t1 = rows.arrivals_ns[rows.offsets[:-1][has]]
    # The first token of a request comes from prefill and is not in the decode server's count; what came with it is.
    begun = int(((t1 >= first.at_ns) & (t1 < last.at_ns)).sum())
    received = credit(first.at_ns, last.at_ns) - begun
    rate = received / max(last.at_ns - first.at_ns, 1)
    tolerance = 2 * mark.concurrency + rate * (first.took_ns + last.took_ns + MAX_WAY_NS)
    # SGLang's overlapped scheduler has launched the next step when it learns that a request has ended, and counts it.
    ended = int(((rows.ended_ns >= first.at_ns) & (rows.ended_ns < last.at_ns)).sum())
    if not -tolerance <= served - received <= ended + tolerance:
        further = f", and {ended} steps of ended requests" if served > received else ""
        return [f"server counted {served:g} tokens, the client {received:.0f} (tolerance {tolerance:.0f}{further})"]
    return []
