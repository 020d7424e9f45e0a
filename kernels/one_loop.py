"""Experiment (d), the control of the two loops: both caches' lists in one loop, each tile out of one cache alone.

Not the product's path: it shows what a second loop costs or saves.
"""

# Device code is typed by Triton, not by Python.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment, no-any-return"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.arguments import at_once, call_of
from kernels.sparse_mla_decode import (
    Choice,
    _attend,
    _entries,
    _extent,
    _fresh,
    _gather,
    _leave,
    _merge_kernel,
    _queries,
    split_count,
)


@triton.jit(
    do_not_specialize=[
        "capacity", "extra_capacity", "topk", "extra_topk", "splits", "chunk", "stride_lse_row", "stride_index_row",
        "stride_extra_row",
    ]
)  # fmt: skip
def _one_loop_kernel(
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
    splits: tl.int32,
    chunk: tl.int32,
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
):
    """One program: the same part of the two lists laid end to end, its tiles being of one list or the other."""
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head_block = tl.program_id(0) % head_blocks
    row = (tl.program_id(0) // head_blocks).to(tl.int64)
    heads_at = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    split = tl.program_id(1)
    start = split * chunk
    extra_start = tl.maximum(start - topk, 0)
    lanes = tl.arange(0, BLOCK_T)
    if CHAINED:
        tl.extra.cuda.gdc_wait()
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()

    index_at = index_ptr + row * stride_index_row
    extra_index_at = extra_index_ptr + row * stride_extra_row
    q = _queries(q_ptr + row * stride_q_row + heads_at[:, None] * stride_q_head, heads_at < HEADS)
    n_main, end = _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    used = tl.maximum(tl.cdiv(end, chunk), 1)
    if split >= used:
        return

    main_stop = tl.minimum(start + chunk, n_main)
    extra_stop = tl.minimum(start + chunk, end) - topk
    main_tiles = tl.cdiv(tl.maximum(main_stop - start, 0), BLOCK_T)
    extra_tiles = tl.cdiv(tl.maximum(extra_stop - extra_start, 0), BLOCK_T)
    # Tile i of the second list begins at extra_from + i * BLOCK_T.
    extra_from = extra_start - main_tiles * BLOCK_T

    first = main_tiles > 0
    t = tl.where(first, start, extra_from) + lanes
    index = _entries(tl.where(first, index_at, extra_index_at), t, tl.where(first, topk, extra_topk))
    state = _fresh(BLOCK_H, BLOCK_T)
    for i in range(main_tiles + extra_tiles):
        main = i < main_tiles
        valid = (t < tl.where(main, main_stop, extra_stop)) & (index >= 0)
        valid = valid & (index < tl.where(main, capacity, extra_capacity))
        index = tl.where(valid, index, 0)
        page = tl.where(main, index // PAGE, index // EXTRA_PAGE)
        tokens = tl.where(main, PAGE, EXTRA_PAGE)
        slot = index - page * tokens
        base = page.to(tl.int64) * tl.where(main, page_stride, extra_page_stride)
        # The select loses the alignment, and loads fall to single bytes.
        at = tl.multiple_of(base + slot * 576, 16)
        k = _gather(tl.where(main, kv_ptr, extra_kv_ptr), at, tl.multiple_of(base + tokens * 576 + slot * 8, 8), valid)
        main = i + 1 < main_tiles
        t = tl.where(main, start, extra_from) + (i + 1) * BLOCK_T + lanes
        index = _entries(tl.where(main, index_at, extra_index_at), t, tl.where(main, topk, extra_topk))
        state = _attend(state, q, k, valid, scale_log2e)
    _leave(
        state, out_ptr, lse_ptr, sink_ptr, part_ptr, part_lse_ptr, arrived_ptr, row, split, used, splits,
        head_block, stride_out_row, stride_out_head, stride_lse_row, HEADS, HAS_SINK, SINK_IN_LSE, FUSED, BLOCK_H,
    )  # fmt: skip


def one_loop(
    inputs: dict[str, Any],
    choice: Choice,
    *,
    splits: int = 0,
    out: torch.Tensor | None = None,
    partials: torch.dtype = torch.bfloat16,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As sparse_mla_decode on two caches, cut into as many splits (0: as the choice wants).

    ValueError for one cache, where there is nothing to compare.
    """
    call = call_of(inputs, choice, out)
    if not call.shared["HAS_EXTRA"]:
        raise ValueError("there is one loop anyway with one cache; give an extra cache and its indices")
    splits = splits or split_count(call.batch * call.head_blocks, call.tokens, call.slots)
    chunk = triton.cdiv(triton.cdiv(call.tokens, splits), choice.block_t) * choice.block_t
    splits = triton.cdiv(call.tokens, chunk)
    cut = {"splits": splits, "chunk": chunk}
    parts = call.partials(splits, partials)
    _one_loop_kernel[(call.batch * call.head_blocks, splits)](
        **call.shared, **call.attention, **call.options, **cut, **parts
    )
    if choice.merge != "fused" and splits > 1:
        del parts["arrived_ptr"]
        _merge_kernel[(call.batch * call.heads,)](
            **call.shared, **cut, **parts, heads=call.heads, AT_ONCE=at_once(splits), num_warps=2,
            launch_pdl=call.shared["EARLY"],
        )  # fmt: skip
    return call.out, call.lse
