"""Campaigns measured with other load drivers: their files and a table of blocks and starts become a plan and cells."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.errors import InvalidCampaignError, RecordsError
from loadtest.cells import Cell
from loadtest.importing.foreign import ForeignRequest, ForeignRun, read_runs, seconds_in_flight
from loadtest.importing.table import TABLE, read_table
from loadtest.judge.facts import MIN_BLOCKS, Facts, VariantFacts
from loadtest.plan import Design, Lengths, Plan

MIN_REQUEST_LENGTHS = 5.0
MIN_SHARE_AT_CONCURRENCY = 0.5
SAME_WORK = 0.005
UNPROVEN = VariantFacts(stamps=("imported", "not proven"))


@dataclass(frozen=True, slots=True)
class Imported:
    """What `judge` takes; the plan's orders are not those of the campaign, which the cells' starts tell.

    drivers: the load drivers whose files were read.
    """

    plan: Plan
    cells: tuple[Cell, ...]
    facts: Facts
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    block: int
    start: int
    variant: str
    where: str
    run: ForeignRun


def import_campaign(
    folder: Path, controls: Mapping[str, str], delta: float = 0.01, alpha: float = 0.05, simulated: bool = False
) -> Imported:
    """Reads import.csv (block, start, variant, file) and the files it names, which may hold several concurrencies each.

    A file alone cannot say which life of the server it measured, so the table must. Rows of variants that are neither
    judged nor controls are left unread. UsageError names variants without rows; RecordsError and InvalidCampaignError
    say what is missing for a verdict.
    """
    rows = read_table(folder, controls)
    entries = [
        _Entry(row.block, row.start, row.variant, f"line {row.line} ({row.file})", run)
        for row in rows
        for run in read_runs(row.path)
    ]
    design = _check_blocks(entries, controls)
    _check_levels(entries)
    lengths = _check_work(entries)
    levels = tuple(sorted({e.run.concurrency for e in entries}))
    blocks = max(e.block for e in entries) + 1
    plan = Plan(0, dict(controls), levels, blocks, design, lengths, delta=delta, alpha=alpha, imported=True)
    drivers = tuple(sorted({e.run.tool for e in entries}))
    facts = Facts(
        campaign=folder.name,
        simulated=simulated or any(e.run.simulated for e in entries),
        variants=dict.fromkeys(plan.variants, UNPROVEN),
        notes=(
            f"imported from {', '.join(drivers)}: nothing proves which kernel ran, that prompts were the same in both "
            "arms or that the decode batch was full",
            "blocks and starts are as declared in import.csv",
        ),
    )
    return Imported(plan, tuple(foreign_cell(e.run, e.block, e.start, e.variant) for e in entries), facts, drivers)


def foreign_cell(run: ForeignRun, block: int, start: int, variant: str) -> Cell:
    """The steady cell of a run: from one request length after the last slot filled to the last refilled slot."""
    e2e = statistics.median(r.end_s - r.start_s for r in run.requests)
    begin = sorted(r.start_s for r in run.requests)[: run.concurrency][-1] + e2e
    end = min([max(r.start_s for r in run.requests), *run.unfinished_s])
    window_s = max(end - begin, 0.0)
    tokens = sum(_tokens_within(r, begin, end) for r in run.requests) if window_s else 0.0
    ended = [r for r in run.requests if begin <= r.end_s <= end] or list(run.requests)
    promised = max(r.tokens for r in run.requests)
    gaps = [1000 * g for r in ended for g in r.gaps_s]
    tpot = [1000 * (r.last_s - r.first_s) / (r.tokens - 1) for r in ended if r.tokens > 1]
    ttft = [1000 * (r.first_s - r.start_s) for r in ended]
    return Cell(
        block=block,
        start=start,
        variant=variant,
        concurrency=run.concurrency,
        tokens_per_s=tokens / window_s if window_s else math.nan,
        window_s=window_s,
        tokens=round(tokens),
        requests=len(run.requests),
        ttft_p50_ms=_percentile(ttft, 50),
        ttft_p95_ms=_percentile(ttft, 95),
        tpot_p50_ms=_percentile(tpot, 50),
        itl_p50_ms=_percentile(gaps, 50),
        itl_p99_ms=_percentile(gaps, 99),
        e2e_p50_ms=1000 * e2e,
        decode_batch=math.nan,
        failures=run.failures,
        short_outputs=sum(r.tokens < promised for r in run.requests),
        reasons=(*run.faults, *_window_faults(run, begin, end, e2e)),
    )


def _check_levels(entries: list[_Entry]) -> None:
    """Refuses a second run of one start at one concurrency, as of a file that the driver appended to."""
    seen: dict[tuple[int, int, int], _Entry] = {}
    for entry in entries:
        if (first := seen.setdefault((entry.block, entry.start, entry.run.concurrency), entry)) is not entry:
            raise RecordsError(
                f"{TABLE}: start {entry.start} of block {entry.block} has C={entry.run.concurrency} twice, by "
                f"{first.where} and {entry.where}; leave one of the two runs in the files"
            )


def _check_blocks(entries: list[_Entry], controls: Mapping[str, str]) -> Design:
    blocks = {e.block for e in entries}
    if blocks != set(range(len(blocks))) or len(blocks) < MIN_BLOCKS:
        raise InvalidCampaignError(
            f"{TABLE} has blocks {sorted(blocks)}; a verdict needs {MIN_BLOCKS} or more, numbered from 0, each with "
            "freshly started servers of every variant"
        )
    starts = {(e.block, e.start, e.variant) for e in entries}
    if len({(b, s) for b, s, _ in starts}) != len(starts):
        raise InvalidCampaignError(f"{TABLE} gives one start of a block to two variants; number the starts of a block")
    for block in sorted(blocks):
        if absent := ({e.variant for e in entries} - {v for b, _, v in starts if b == block}):
            raise InvalidCampaignError(
                f"{TABLE}: block {block} has no start of {', '.join(sorted(absent))}; an arm counts only "
                "beside the other, measured in the same block"
            )
    counts = set(Counter((b, v) for b, _, v in starts).values())
    if counts not in ({1}, {2}):
        raise InvalidCampaignError(
            f"{TABLE} has {sorted(counts)} starts per block and variant; a verdict needs 2 (as ABBA) or 1 (AB, then BA)"
        )
    return "mirrored" if counts == {2} else "single"


def _check_work(entries: list[_Entry]) -> Lengths:
    prompts = [statistics.mean(r.prompt_tokens for r in e.run.requests) for e in entries]
    outputs = [max(r.tokens for r in e.run.requests) for e in entries]
    for what, values in (("prompt", prompts), ("output", outputs)):
        if max(values) > min(values) * (1 + SAME_WORK):
            raise InvalidCampaignError(
                f"{what}s of {min(values):.0f} and {max(values):.0f} tokens in one campaign: not the same work"
            )
    return Lengths(max(1, round(prompts[0])), max(outputs))


def _window_faults(run: ForeignRun, begin: float, end: float, e2e: float) -> list[str]:
    length = max(end - begin, 0.0) / e2e
    if length < MIN_REQUEST_LENGTHS:
        return [f"steady for {length:.1f} request lengths; needs {MIN_REQUEST_LENGTHS:g} (send more requests)"]
    share = seconds_in_flight(run.requests, run.unfinished_s, begin, end).get(run.concurrency, 0.0) / (end - begin)
    if share < MIN_SHARE_AT_CONCURRENCY:
        return [f"{run.concurrency} requests were in flight for {share:.0%} of the window only: no closed loop"]
    return []


def _tokens_within(request: ForeignRequest, begin: float, end: float) -> float:
    if request.gaps_s:
        times = request.first_s + np.concatenate([[0.0], np.cumsum(request.gaps_s)])
        return float(((begin <= times) & (times < end)).mean() * request.tokens)
    # Without event times tokens are taken as evenly spread, which over many request lengths moves little.
    length = max(request.last_s - request.first_s, 1e-9)
    inside = max(0.0, min(request.last_s, end) - max(request.first_s, begin))
    return request.tokens * inside / length


def _percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q)) if values else math.nan
