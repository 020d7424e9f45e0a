"""Experiment (e), stream-K: a program for each slot of the device, each given an equal range of all rows' tiles.

Not the product's path; docs/kernel.md says what is expected of it, the rows beside the others whether it came true.
"""

# Device code is typed by Triton, not by Python.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment, no-any-return"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.arguments import at_once, call_of
from kernels.sparse_mla_decode import (
    MAX_SPLITS,
    Choice,
    _entries,
    _extent,
    _fresh,
    _leave,
    _merge,
    _queries,
    _walk,
)

# A scan over more rows would cost more than uneven ranges do.
_MOST_ROWS = 1024


class Ranges(NamedTuple):
    """How the tiles are dealt out. live: by the rows' lengths, summed by every program, instead of by their capacity.

    whole_rows: no row is shared; a program walks its rows one after the other. At most one of the two. snug: to as few
    programs as leave the longest range no longer, which puts fewer borders of rows into ranges.
    """

    live: bool = False
    whole_rows: bool = False
    snug: bool = False


@triton.jit
def _worker(tile, workers, units, grain):
    """Who works on a tile, where worker w has the units [w * units / workers, (w + 1) * units / workers)."""
    return ((tile // grain + 1) * workers - 1) // units


@triton.jit
def _ends(length_ptr, extra_length_ptr, batch, topk, extra_topk, HAS_LENGTH: tl.constexpr, HAS_EXTRA: tl.constexpr,
          HAS_EXTRA_LENGTH: tl.constexpr, BLOCK_T: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """The tile after each row's last live one, all rows laid end to end. A row without entries has one: its zeros."""
    rows = tl.arange(0, ROWS)
    at = tl.minimum(rows, batch - 1)
    _, end = _extent(length_ptr, extra_length_ptr, at, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    return tl.cumsum(tl.where(rows < batch, tl.maximum(tl.cdiv(end, BLOCK_T), 1), 0), 0)


@triton.jit(
    do_not_specialize=[
        "capacity", "extra_capacity", "topk", "extra_topk", "batch", "workers", "tiles", "grain", "splits",
        "stride_lse_row", "stride_index_row", "stride_extra_row",
    ]
)  # fmt: skip
def _stream_kernel(
    q_ptr,
    out_ptr,
    lse_ptr,
    kv_ptr,
    index_ptr,
    length_ptr,
    extra_kv_ptr,
    extra_index_ptr,
    extra_length_ptr,
    sink_ptr,
    part_ptr,
    part_lse_ptr,
    arrived_ptr,
    scale_log2e: tl.float32,
    page_stride: tl.int64,
    extra_page_stride: tl.int64,
    capacity: tl.int32,
    extra_capacity: tl.int32,
    topk: tl.int32,
    extra_topk: tl.int32,
    batch: tl.int32,
    workers: tl.int32,
    tiles: tl.int32,
    grain: tl.int32,
    splits: tl.int32,
    stride_q_row: tl.int64,
    stride_q_head: tl.int64,
    stride_out_row: tl.int64,
    stride_out_head: tl.int64,
    stride_lse_row: tl.int64,
    stride_index_row: tl.int64,
    stride_extra_row: tl.int64,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    EXTRA_PAGE: tl.constexpr,
    HAS_LENGTH: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    HAS_EXTRA_LENGTH: tl.constexpr,
    HAS_SINK: tl.constexpr,
    SINK_IN_LSE: tl.constexpr,
    FUSED: tl.constexpr,
    EARLY: tl.constexpr,
    CHAINED: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_T: tl.constexpr,
    LIVE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One program: BLOCK_H heads of all rows over one range of tiles; what it has of each row is left as a split."""
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head_block = tl.program_id(0) % head_blocks
    worker = tl.program_id(0) // head_blocks
    heads_at = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    head_mask = heads_at < HEADS
    if CHAINED:
        tl.extra.cuda.gdc_wait()
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()

    units = batch * tiles // grain
    if LIVE:
        ends = _ends(length_ptr, extra_length_ptr, batch, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH,
                     BLOCK_T, ROWS)  # fmt: skip
        units = tl.max(ends, 0)
        # A worker without a tile would be waited for.
        workers = tl.minimum(workers, units)
        if worker >= workers:
            return
    lo = worker * units // workers * grain
    hi = (worker + 1) * units // workers * grain
    first = lo // tiles * tiles
    row = lo // tiles
    rows = tl.cdiv(hi, tiles) - row
    if LIVE:
        row = tl.sum((ends <= lo).to(tl.int32), 0)
        rows = tl.sum((ends < hi).to(tl.int32), 0) + 1 - row
        first = tl.max(tl.where(ends <= lo, ends, 0), 0)
    for _ in tl.range(0, rows, num_stages=1):
        at = row.to(tl.int64)
        start = (lo - first) * BLOCK_T
        t = start + tl.arange(0, BLOCK_T)
        index_at = index_ptr + at * stride_index_row
        index = _entries(index_at, t, topk)
        if HAS_EXTRA:
            extra_start = tl.maximum(start - topk, 0)
            extra_t = extra_start + tl.arange(0, BLOCK_T)
            extra_index_at = extra_index_ptr + at * stride_extra_row
            extra_index = _entries(extra_index_at, extra_t, extra_topk)
        q = _queries(q_ptr + at * stride_q_row + heads_at[:, None] * stride_q_head, head_mask)
        n_main, end = _extent(
            length_ptr, extra_length_ptr, at, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH
        )
        live = first + tl.maximum(tl.cdiv(end, BLOCK_T), 1)
        after = first + tiles
        if LIVE:
            after = live
        if lo < live:
            stop = tl.minimum((tl.minimum(hi, live) - first) * BLOCK_T, end)
            state = _walk(
                _fresh(BLOCK_H, BLOCK_T), q, t, index, index_at, kv_ptr, start, tl.minimum(stop, n_main), topk,
                capacity, page_stride, scale_log2e, PAGE, BLOCK_T,
            )  # fmt: skip
            if HAS_EXTRA:
                state = _walk(
                    state, q, extra_t, extra_index, extra_index_at, extra_kv_ptr, extra_start, stop - topk, extra_topk,
                    extra_capacity, extra_page_stride, scale_log2e, EXTRA_PAGE, BLOCK_T,
                )  # fmt: skip
            owner = _worker(first, workers, units, grain)
            used = _worker(live - 1, workers, units, grain) - owner + 1
            _leave(
                state, out_ptr, lse_ptr, sink_ptr, part_ptr, part_lse_ptr, arrived_ptr, at, worker - owner, used,
                splits, head_block, stride_out_row, stride_out_head, stride_lse_row, HEADS, HAS_SINK, SINK_IN_LSE,
                FUSED, BLOCK_H,
            )  # fmt: skip
        first = after
        lo = after
        row += 1


@triton.jit(
    do_not_specialize=[
        "heads", "topk", "extra_topk", "batch", "workers", "tiles", "grain", "splits", "stride_lse_row",
    ]
)  # fmt: skip
def _stream_merge_kernel(
    out_ptr,
    lse_ptr,
    length_ptr,
    extra_length_ptr,
    sink_ptr,
    part_ptr,
    part_lse_ptr,
    heads: tl.int32,
    topk: tl.int32,
    extra_topk: tl.int32,
    batch: tl.int32,
    workers: tl.int32,
    tiles: tl.int32,
    grain: tl.int32,
    splits: tl.int32,
    stride_out_row: tl.int64,
    stride_out_head: tl.int64,
    stride_lse_row: tl.int64,
    HAS_LENGTH: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    HAS_EXTRA_LENGTH: tl.constexpr,
    HAS_SINK: tl.constexpr,
    SINK_IN_LSE: tl.constexpr,
    EARLY: tl.constexpr,
    BLOCK_T: tl.constexpr,
    LIVE: tl.constexpr,
    ROWS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """One program: one head of one row, out of what the workers that share the row have left."""
    head = tl.program_id(0) % heads
    row = tl.program_id(0) // heads
    _, end = _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    units = batch * tiles // grain
    first = row * tiles
    if LIVE:
        ends = _ends(length_ptr, extra_length_ptr, batch, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH,
                     BLOCK_T, ROWS)  # fmt: skip
        units = tl.max(ends, 0)
        workers = tl.minimum(workers, units)
        first = tl.max(tl.where(tl.arange(0, ROWS) < row, ends, 0), 0)
    live = first + tl.maximum(tl.cdiv(end, BLOCK_T), 1)
    used = _worker(live - 1, workers, units, grain) - _worker(first, workers, units, grain) + 1
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if used > 1:
        at = row.to(tl.int64)
        heads_at = head + tl.arange(0, 1)
        _merge(
            out_ptr + at * stride_out_row + heads_at[:, None] * stride_out_head,
            lse_ptr + at * stride_lse_row + heads_at,
            sink_ptr, part_ptr, part_lse_ptr, at * splits * heads, heads, heads_at, heads_at < heads, used,
            HAS_SINK, SINK_IN_LSE, AT_ONCE, 512,
        )  # fmt: skip


def worker_count(units: int, slots: int, ranges: Ranges) -> int:
    """How many programs share `units` of work where `slots` may run at a time."""
    workers = min(slots, units)
    return int(triton.cdiv(units, triton.cdiv(units, workers))) if ranges.snug else workers


def most_splits(batch: int, tiles: int, workers: int, ranges: Ranges) -> int:
    """How many workers may share one row of `tiles` tiles."""
    if ranges.whole_rows:
        return 1
    if ranges.live:
        return min(tiles, workers)
    return min(triton.cdiv(tiles - 1, batch * tiles // workers) + 1, tiles)


def stream_k(
    inputs: dict[str, Any],
    choice: Choice,
    ranges: Ranges,
    *,
    workers: int = 0,
    out: torch.Tensor | None = None,
    partials: torch.dtype = torch.bfloat16,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As sparse_mla_decode, with the meaning of its results, for inputs by its names; workers 0: what the choice wants.

    ValueError for what it cannot deal out or merge.
    """
    call = call_of(inputs, choice, out)
    if ranges.live and (ranges.whole_rows or call.batch > _MOST_ROWS):
        raise ValueError(f"live ranges share rows, of {_MOST_ROWS} at most, not {call.batch}")
    tiles = triton.cdiv(call.tokens, choice.block_t)
    grain = tiles if ranges.whole_rows else 1
    workers = worker_count(call.batch * tiles // grain, workers or max(call.slots // call.head_blocks, 1), ranges)
    splits = most_splits(call.batch, tiles, workers, ranges)
    if splits > MAX_SPLITS.value:
        raise ValueError(f"a row of {tiles} tiles may have {splits} owners, more than {MAX_SPLITS.value}: take fewer")
    dealt = {
        "batch": call.batch, "workers": workers, "tiles": tiles, "grain": grain, "splits": splits,
        "LIVE": ranges.live, "ROWS": triton.next_power_of_2(call.batch) if ranges.live else 1,
    }  # fmt: skip
    parts = call.partials(splits, partials)
    _stream_kernel[(workers * call.head_blocks,)](**call.shared, **call.attention, **call.options, **dealt, **parts)
    if choice.merge != "fused" and splits > 1:
        del parts["arrived_ptr"]
        _stream_merge_kernel[(call.batch * call.heads,)](
            **call.shared, **dealt, **parts, heads=call.heads, BLOCK_T=choice.block_t, AT_ONCE=at_once(splits),
            num_warps=2, launch_pdl=choice.merge in ("early", "chained"),
        )  # fmt: skip
    return call.out, call.lse
