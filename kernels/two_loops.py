"""Experiment (d), the control of the virtual list: two caches in one launch, but each list walked by a loop of its own.

Not the product's path: it shows what choosing the cache per token costs or saves.
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
    _entries,
    _extent,
    _fresh,
    _leave,
    _merge_kernel,
    _queries,
    _walk,
    split_count,
)


@triton.jit(
    do_not_specialize=[
        "capacity", "extra_capacity", "topk", "extra_topk", "splits", "chunk", "stride_lse_row", "stride_index_row",
        "stride_extra_row",
    ]
)  # fmt: skip
def _two_loops_kernel(
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
    """One program: the same part of the two lists laid end to end as in the product's kernel, in one loop each."""
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head_block = tl.program_id(0) % head_blocks
    row = (tl.program_id(0) // head_blocks).to(tl.int64)
    split = tl.program_id(1)
    heads_at = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    if CHAINED:
        tl.extra.cuda.gdc_wait()
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()

    start = split * chunk
    extra_start = tl.maximum(start - topk, 0)
    t = start + tl.arange(0, BLOCK_T)
    extra_t = extra_start + tl.arange(0, BLOCK_T)
    index_at = index_ptr + row * stride_index_row
    extra_index_at = extra_index_ptr + row * stride_extra_row
    index = _entries(index_at, t, topk)
    extra_index = _entries(extra_index_at, extra_t, extra_topk)
    q = _queries(q_ptr + row * stride_q_row + heads_at[:, None] * stride_q_head, heads_at < HEADS)
    n_main, end = _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    used = tl.maximum(tl.cdiv(end, chunk), 1)
    if split >= used:
        return

    stop = tl.minimum(start + chunk, n_main)
    state = _walk(
        _fresh(BLOCK_H, BLOCK_T), q, t, index, index, index_at, index_at, kv_ptr, start, stop, stop, topk, extra_topk,
        capacity, extra_capacity, page_stride, extra_page_stride, 0, scale_log2e, PAGE, EXTRA_PAGE, False, BLOCK_T,
    )  # fmt: skip
    stop = tl.minimum(start + chunk, end) - topk
    state = _walk(
        state, q, extra_t, extra_index, extra_index, extra_index_at, extra_index_at, extra_kv_ptr, extra_start, stop,
        stop, extra_topk, topk, extra_capacity, capacity, extra_page_stride, page_stride, 0, scale_log2e, EXTRA_PAGE,
        PAGE, False, BLOCK_T,
    )  # fmt: skip
    _leave(
        state, out_ptr, lse_ptr, sink_ptr, part_ptr, part_lse_ptr, arrived_ptr, row, split, used, splits, head_block,
        stride_out_row, stride_out_head, stride_lse_row, HEADS, HAS_SINK, SINK_IN_LSE, FUSED, BLOCK_H,
    )  # fmt: skip


def two_loops(
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
        raise ValueError("two loops need two caches; give an extra cache and its indices")
    splits = splits or split_count(call.batch * call.head_blocks, call.tokens, call.slots)
    chunk = triton.cdiv(triton.cdiv(call.tokens, splits), choice.block_t) * choice.block_t
    splits = triton.cdiv(call.tokens, chunk)
    cut = {"splits": splits, "chunk": chunk}
    parts = call.partials(splits, partials)
    _two_loops_kernel[(call.batch * call.head_blocks, splits)](
        **call.shared, **call.attention, **call.options, **cut, **parts
    )
    if choice.merge != "fused" and splits > 1:
        del parts["arrived_ptr"]
        _merge_kernel[(call.batch * call.heads,)](
            **call.shared, **cut, **parts, heads=call.heads, AT_ONCE=at_once(splits), num_warps=2,
            launch_pdl=call.shared["EARLY"],
        )  # fmt: skip
    return call.out, call.lse
