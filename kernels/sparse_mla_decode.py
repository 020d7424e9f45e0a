"""Sparse MLA decode over a paged FP8 cache (DeepSeek-V4 geometry) as one Triton launch: two caches, lengths, sink, LSE.

Drop-in for SGLang's flash_mla_sm120_triton.py: same public function; imports torch, triton and the standard library.
"""

# Device code is typed by Triton, not by Python.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment, no-any-return"

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

# Choices made offline, by architecture: rows [heads, batch, tokens, then the fields of Choice], the first three being
# upper bounds (0: none) and the first row that fits ruling. Empty: the autotune list below rules, other fields default.
TUNED: dict[str, list[list[Any]]] = {}

FLOOR = tl.constexpr(-3.0e38)
LOG2E = tl.constexpr(1.4426950408889634)
COMPUTE = tl.constexpr(tl.bfloat16)
MAX_SPLITS = tl.constexpr(64)

# e4m3 has no direct conversion to bf16 before sm_100; through f16 and f32 it is exact, five instructions a pair.
_UPCAST = tl.constexpr(
    """{
    .reg .b16 p0, p1, e0, e1, e2, e3;
    .reg .b32 h0, h1;
    .reg .f32 f0, f1, f2, f3;
    mov.b32 {p0, p1}, $2;
    cvt.rn.f16x2.e4m3x2 h0, p0;
    cvt.rn.f16x2.e4m3x2 h1, p1;
    mov.b32 {e0, e1}, h0;
    mov.b32 {e2, e3}, h1;
    cvt.f32.f16 f0, e0;
    cvt.f32.f16 f1, e1;
    cvt.f32.f16 f2, e2;
    cvt.f32.f16 f3, e3;
    cvt.rn.bf16x2.f32 $0, f1, f0;
    cvt.rn.bf16x2.f32 $1, f3, f2;
    }"""
)


@triton.jit
def _upcast(raw):
    return tl.inline_asm_elementwise(_UPCAST, "=r,=r,r", [raw], dtype=tl.bfloat16, is_pure=True, pack=4)


@triton.jit
def _pin(x):
    # Impure on purpose: pure work is moved past the layout change, done twice, and V is then read byte by byte.
    return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.bfloat16, is_pure=False, pack=2)


@triton.jit
def _gather(kv_ptr, at, scales_at, valid):
    """The keys at the byte offsets of one tile's tokens, dequantised, as eight tiles [T, 64] bf16."""
    scales = tl.load((kv_ptr + scales_at).to(tl.pointer_type(tl.int64)), mask=valid, other=0)
    kv_at = kv_ptr + at[:, None]
    raw = ()
    for g in tl.static_range(7):
        raw = raw + (tl.load(kv_at + g * 64 + tl.arange(0, 64)[None, :], mask=valid[:, None], other=0),)
    rope_at = (kv_at + 448).to(tl.pointer_type(tl.bfloat16)) + tl.arange(0, 64)[None, :]
    rope = tl.load(rope_at, mask=valid[:, None], other=0.0).to(COMPUTE)
    k = ()
    for g in tl.static_range(7):
        code = (scales >> (8 * g)).to(tl.int32) & 0xFF
        # UE8M0 is bf16's exponent field, but for 0, which is the subnormal 2^-127, and for 255, which is NaN.
        bits = (code << 7) | tl.where((code == 0) | (code == 255), 0x40, 0)
        scale = bits.to(tl.int16).to(tl.bfloat16, bitcast=True).to(COMPUTE)
        k = k + (_pin(_upcast(raw[g]) * scale[:, None]),)
    return k + (rope,)


@triton.jit
def _queries(q_at, head_mask):
    """One row's queries as eight tiles [H, 64]."""
    q = ()
    for g in tl.static_range(8):
        at = q_at + g * 64 + tl.arange(0, 64)[None, :]
        q = q + (tl.load(at, mask=head_mask[:, None], other=0.0).to(COMPUTE),)
    return q


@triton.jit
def _fresh(BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr):
    """An online softmax of nothing: values by chunk [H, 64], weight by column [H, T], top score [H] in base 2."""
    acc = ()
    for _ in tl.static_range(8):
        acc = acc + (tl.zeros((BLOCK_H, 64), tl.float32),)
    return acc, tl.zeros((BLOCK_H, BLOCK_T), tl.float32), tl.full((BLOCK_H,), FLOOR, tl.float32)


@triton.jit
def _live(len_ptr, row, topk, HAS_LENGTH: tl.constexpr):
    n = topk
    if HAS_LENGTH:
        n = tl.maximum(tl.minimum(tl.load(len_ptr + row).to(tl.int32), topk), 0)
    return n


@triton.jit
def _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH: tl.constexpr, HAS_EXTRA: tl.constexpr,
            HAS_EXTRA_LENGTH: tl.constexpr):  # fmt: skip
    """Live entries of the first list, and the end of the live part of both end to end (the second starts at topk)."""
    n_main = _live(length_ptr, row, topk, HAS_LENGTH)
    end = n_main
    if HAS_EXTRA:
        n_extra = _live(extra_length_ptr, row, extra_topk, HAS_EXTRA_LENGTH)
        end = tl.where(n_extra > 0, topk + n_extra, n_main)
    return n_main, end


@triton.jit
def _entries(ptr, t, count):
    return tl.load(ptr + t, mask=(t >= 0) & (t < count), other=-1).to(tl.int32)


@triton.jit
def _byte_offsets(index, page_stride, PAGE: tl.constexpr):
    page = index // PAGE
    slot = index - page * PAGE
    base = page.to(tl.int64) * page_stride
    return base + slot * 576, base + PAGE * 576 + slot * 8


@triton.jit
def _attend(state, q, k, valid, scale_log2e):
    """State (see _fresh) after one tile of keys, which are its values too."""
    acc, weight, top = state
    s = tl.zeros_like(weight)
    for g in tl.static_range(8):
        s = tl.dot(q[g], tl.trans(k[g]), s)
    s = tl.where(valid[None, :], s * scale_log2e, float("-inf"))
    new_top = tl.maximum(top, tl.max(s, 1))
    p = tl.exp2(s - new_top[:, None])
    fade = tl.exp2(top - new_top)[:, None]
    # Kept per column and summed once at the end: one exchange between warps less in every step.
    weight = weight * fade + p
    p = p.to(COMPUTE)
    new_acc = ()
    for g in tl.static_range(8):
        new_acc = new_acc + (tl.dot(p, k[g], acc[g] * fade),)
    return new_acc, weight, new_top


@triton.jit
def _walk(
    state, q, t, index, index_at, kv_ptr, start, stop, topk, capacity, page_stride, scale_log2e,
    PAGE: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """State (see _fresh) after the entries [start, stop) of a row's list; t and index are the first tile's."""
    for _ in range(start, stop, BLOCK_T):
        valid = (t < stop) & (index >= 0) & (index < capacity)
        at, scales_at = _byte_offsets(tl.where(valid, index, 0), page_stride, PAGE)
        k = _gather(kv_ptr, at, scales_at, valid)
        # The next entries come while this tile is worked on: no gather waits for an address.
        t += BLOCK_T
        index = _entries(index_at, t, topk)
        state = _attend(state, q, k, valid, scale_log2e)
    return state


@triton.jit
def _store_chunks(ptr, acc, factor, mask):
    for g in tl.static_range(8):
        x = (acc[g] * factor[:, None]).to(ptr.dtype.element_ty)
        tl.store(ptr + g * 64 + tl.arange(0, 64)[None, :], x, mask=mask[:, None])


@triton.jit
def _finish(sink_ptr, lse2, heads_at, head_mask, HAS_SINK: tl.constexpr, SINK_IN_LSE: tl.constexpr):
    """The share of the output that the sink leaves and the natural-log LSE to report, from the keys' base-2 LSE."""
    share = tl.where(lse2 == float("-inf"), 0.0, 1.0)
    lse = lse2
    if HAS_SINK:
        sink2 = tl.load(sink_ptr + heads_at, mask=head_mask, other=float("-inf")).to(tl.float32) * LOG2E
        top = tl.maximum(tl.maximum(lse2, sink2), FLOOR)
        both = top + tl.log2(tl.exp2(lse2 - top) + tl.exp2(sink2 - top))
        # inf - inf is NaN: an infinite sink takes everything.
        both = tl.where(sink2 == float("inf"), sink2, both)
        share = tl.where(lse2 == float("-inf"), 0.0, tl.exp2(lse2 - both))
        if SINK_IN_LSE:
            lse = both
    return share, lse / LOG2E


@triton.jit
def _parts(part_ptr, part_lse_ptr, first, heads, heads_at, head_mask, start, used, columns, AT_ONCE: tl.constexpr):
    """LSEs and values of up to AT_ONCE partial results, all loads before the first use."""
    lses = ()
    parts = ()
    for i in tl.static_range(AT_ONCE):
        there = tl.where(start + i < used, head_mask, False)
        at = first + (start + i) * heads + heads_at
        # Another program wrote these: .cg reads them from L2, where its release left them.
        lses = lses + (tl.load(part_lse_ptr + at, mask=there, other=float("-inf"), cache_modifier=".cg"),)
        at = part_ptr + at[:, None] * 512 + columns
        parts = parts + (tl.load(at, mask=there[:, None], other=0.0, cache_modifier=".cg"),)
    return lses, parts


@triton.jit
def _merge(
    out_at, lse_at, sink_ptr, part_ptr, part_lse_ptr, first, heads, heads_at, head_mask, used,
    HAS_SINK: tl.constexpr, SINK_IN_LSE: tl.constexpr, AT_ONCE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, COLUMNS)[None, :]
    lses, parts = _parts(part_ptr, part_lse_ptr, first, heads, heads_at, head_mask, 0, used, columns, AT_ONCE)
    s = tl.arange(0, MAX_SPLITS)[:, None]
    live = (s < used) & head_mask[None, :]
    lse2 = part_lse_ptr + first + s * heads + heads_at[None, :]
    lse2 = tl.load(lse2, mask=live, other=float("-inf"), cache_modifier=".cg")
    top = tl.maximum(tl.max(lse2, 0), FLOOR)
    total = tl.sum(tl.exp2(lse2 - top[None, :]), 0)
    lse2 = tl.where(total == 0.0, float("-inf"), top + tl.log2(total))
    share, lse = _finish(sink_ptr, lse2, heads_at, head_mask, HAS_SINK, SINK_IN_LSE)
    share = share / tl.where(total == 0.0, 1.0, total)
    tl.store(lse_at, lse, mask=head_mask)
    for left in tl.static_range(0, 512, COLUMNS):
        if left > 0:
            columns = left + tl.arange(0, COLUMNS)[None, :]
            lses, parts = _parts(part_ptr, part_lse_ptr, first, heads, heads_at, head_mask, 0, used, columns, AT_ONCE)
        acc = tl.exp2(lses[0] - top)[:, None] * parts[0].to(tl.float32)
        for i in tl.static_range(1, AT_ONCE):
            acc += tl.exp2(lses[i] - top)[:, None] * parts[i].to(tl.float32)
        for start in range(AT_ONCE, used, AT_ONCE):
            more_lses, more = _parts(
                part_ptr, part_lse_ptr, first, heads, heads_at, head_mask, start, used, columns, AT_ONCE
            )
            for i in tl.static_range(AT_ONCE):
                acc += tl.exp2(more_lses[i] - top)[:, None] * more[i].to(tl.float32)
        out = (acc * share[:, None]).to(out_at.dtype.element_ty)
        tl.store(out_at + columns, out, mask=head_mask[:, None])


@triton.jit(do_not_specialize=["heads", "topk", "extra_topk", "splits", "chunk", "stride_lse_row"])
def _merge_kernel(
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
    splits: tl.int32,
    chunk: tl.int32,
    stride_out_row: tl.int64,
    stride_out_head: tl.int64,
    stride_lse_row: tl.int64,
    HAS_LENGTH: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    HAS_EXTRA_LENGTH: tl.constexpr,
    HAS_SINK: tl.constexpr,
    SINK_IN_LSE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program: one head of one row, out of the partial results of its splits."""
    head = tl.program_id(0) % heads
    row = (tl.program_id(0) // heads).to(tl.int64)
    _, end = _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    used = tl.maximum(tl.cdiv(end, chunk), 1)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if used > 1:
        heads_at = head + tl.arange(0, 1)
        _merge(
            out_ptr + row * stride_out_row + heads_at[:, None] * stride_out_head,
            lse_ptr + row * stride_lse_row + heads_at,
            sink_ptr, part_ptr, part_lse_ptr, row * splits * heads, heads, heads_at, heads_at < heads, used,
            HAS_SINK, SINK_IN_LSE, AT_ONCE, 512,
        )  # fmt: skip


@triton.jit
def _leave(
    state, out_ptr, lse_ptr, sink_ptr, part_ptr, part_lse_ptr, arrived_ptr, row, split, used, splits, head_block,
    stride_out_row, stride_out_head, stride_lse_row,
    HEADS: tl.constexpr, HAS_SINK: tl.constexpr, SINK_IN_LSE: tl.constexpr, FUSED: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Stores the result of one of `used` splits of a row: as output where it is the only one, else as its part."""
    acc, weight, top = state
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    heads_at = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    head_mask = heads_at < HEADS
    total = tl.sum(weight, 1)
    lse2 = tl.where(total == 0.0, float("-inf"), top + tl.log2(total))
    unit = 1.0 / tl.where(total == 0.0, 1.0, total)
    out_at = out_ptr + row * stride_out_row + heads_at[:, None] * stride_out_head
    lse_at = lse_ptr + row * stride_lse_row + heads_at
    if used == 1:
        share, lse = _finish(sink_ptr, lse2, heads_at, head_mask, HAS_SINK, SINK_IN_LSE)
        _store_chunks(out_at, acc, unit * share, head_mask)
        tl.store(lse_at, lse, mask=head_mask)
    else:
        first = row * splits * HEADS
        mine = first + split * HEADS + heads_at
        _store_chunks(part_ptr + mine[:, None] * 512, acc, unit, head_mask)
        tl.store(part_lse_ptr + mine, lse2, mask=head_mask)
        if FUSED:
            # Every thread's partial result must be out before the one thread that counts says so.
            tl.debug_barrier()
            counter = arrived_ptr + row * head_blocks + head_block
            if tl.atomic_add(counter, 1, sem="acq_rel") == used - 1:
                tl.store(counter, 0)
                _merge(
                    out_at, lse_at, sink_ptr, part_ptr, part_lse_ptr, first, HEADS, heads_at, head_mask, used,
                    HAS_SINK, SINK_IN_LSE, 2, 256,
                )  # fmt: skip


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2),
    ],
    key=["topk_rounded"],
)
@triton.jit(
    do_not_specialize=[
        "capacity", "extra_capacity", "topk", "extra_topk", "splits", "chunk", "topk_rounded", "batch_rounded",
        "stride_lse_row", "stride_index_row", "stride_extra_row",
    ]
)  # fmt: skip
def _sparse_mla_decode_kernel(
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
    topk_rounded: tl.int32,
    batch_rounded: tl.int32,
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
    """One program: BLOCK_H heads of one row over one split of its tokens; the last split of a row to arrive merges."""
    head_blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    head_block = tl.program_id(0) % head_blocks
    row = (tl.program_id(0) // head_blocks).to(tl.int64)
    split = tl.program_id(1)
    heads_at = head_block * BLOCK_H + tl.arange(0, BLOCK_H)
    if CHAINED:
        # Launched before the kernel ahead has ended: nothing may be read or written until it has.
        tl.extra.cuda.gdc_wait()
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()

    start = split * chunk
    t = start + tl.arange(0, BLOCK_T)
    index_at = index_ptr + row * stride_index_row
    index = _entries(index_at, t, topk)
    if HAS_EXTRA:
        extra_start = tl.maximum(start - topk, 0)
        extra_t = extra_start + tl.arange(0, BLOCK_T)
        extra_index_at = extra_index_ptr + row * stride_extra_row
        extra_index = _entries(extra_index_at, extra_t, extra_topk)
    q = _queries(q_ptr + row * stride_q_row + heads_at[:, None] * stride_q_head, heads_at < HEADS)
    n_main, end = _extent(length_ptr, extra_length_ptr, row, topk, extra_topk, HAS_LENGTH, HAS_EXTRA, HAS_EXTRA_LENGTH)
    used = tl.maximum(tl.cdiv(end, chunk), 1)
    if split >= used:
        return

    state = _walk(
        _fresh(BLOCK_H, BLOCK_T), q, t, index, index_at, kv_ptr, start, tl.minimum(start + chunk, n_main), topk,
        capacity, page_stride, scale_log2e, PAGE, BLOCK_T,
    )  # fmt: skip
    if HAS_EXTRA:
        # A loop of its own: choosing the cache token by token, or tile by tile, costs more than a second pipeline.
        state = _walk(
            state, q, extra_t, extra_index, extra_index_at, extra_kv_ptr, extra_start,
            tl.minimum(start + chunk, end) - topk, extra_topk, extra_capacity, extra_page_stride, scale_log2e,
            EXTRA_PAGE, BLOCK_T,
        )  # fmt: skip
    _leave(
        state, out_ptr, lse_ptr, sink_ptr, part_ptr, part_lse_ptr, arrived_ptr, row, split, used, splits, head_block,
        stride_out_row, stride_out_head, stride_lse_row, HEADS, HAS_SINK, SINK_IN_LSE, FUSED, BLOCK_H,
    )  # fmt: skip


class Choice(NamedTuple):
    """How a problem is launched.

    per_sm: programs for each multiprocessor, which decides the splits. max_registers: a thread's, 0 for the compiler's
    choice. merge of the splits: "fused" by the last to arrive, "apart" in a second launch, "early" in one begun while
    the first still runs (programmatic dependent launch), "chained" as early, the first too starting ahead of what
    precedes it.
    """

    block_t: int
    num_warps: int
    num_stages: int
    per_sm: int = 2
    max_registers: int = 0
    merge: str = "fused"


# The height of the tensor core's tile: more heads a program would spill, fewer are padded to it.
BLOCK_H = 16
_MAX_COUNTERS = 16384
_COUNTERS: dict[tuple[torch.device, int], torch.Tensor] = {}


@lru_cache
def _device_facts(device: torch.device) -> tuple[str, int]:
    """Architecture ("90", "120") and number of multiprocessors."""
    if device.type != "cuda":
        return device.type, 1
    facts = torch.cuda.get_device_properties(device)
    return f"{facts.major}{facts.minor}", facts.multi_processor_count


def tuned_choice(arch: str, heads: int, batch: int, tokens: int) -> Choice | None:
    """The row of TUNED for a problem, None where the autotune list rules. tokens: top-k of both caches together."""
    for row in TUNED.get(arch, ()):
        if all(bound == 0 or value <= bound for value, bound in zip((heads, batch, tokens), row, strict=False)):
            return Choice(*row[3:])
    return None


def split_count(pairs: int, tokens: int, programs: int) -> int:
    """Into how many parts the tokens of each of `pairs` (row, head block) are cut so that at most `programs` run.

    Long lists are cut further: among short rows, one long row should not run alone at the end.
    """
    if pairs > _MAX_COUNTERS:
        return 1
    finest = tokens // 256 if tokens >= 1024 else 1
    return max(1, min(max(programs // pairs, finest), triton.cdiv(tokens, 16), MAX_SPLITS.value))


def _counters(device: torch.device) -> torch.Tensor:
    """Zeroed arrival counters of the current stream; every launch leaves them zero, so launches in order share them."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    found = _COUNTERS.get((device, stream))
    if found is None:
        found = torch.zeros(_MAX_COUNTERS, dtype=torch.int32, device=device)
        # Memory taken during a capture belongs to that graph, and is zeroed by its replay alone.
        if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
            _COUNTERS[device, stream] = found
    return found


def _rows(x: torch.Tensor, batch: int) -> torch.Tensor:
    """Indices [B, ..., k] as [B, k] without a copy where the last axis is dense."""
    flat = x.reshape(batch, -1)
    return flat if flat.stride(-1) == 1 or flat.shape[1] <= 1 else flat.contiguous()


def _pages(cache: torch.Tensor) -> torch.Tensor:
    if cache.stride(0) % 16 or cache.data_ptr() % 16:
        raise ValueError(
            f"page stride ({cache.stride(0)} B) or base of the KV cache is no multiple of 16; pad the pages"
        )
    return cache.view(torch.uint8)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def sparse_mla_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    *,
    sink_in_lse: bool = False,
    out: torch.Tensor | None = None,
    choice: Choice | None = None,
    splits: int | None = None,
    partials: torch.dtype = torch.bfloat16,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [B, 1, H, 512] bf16 over the tokens that the indices name, in one launch; no host synchronisation.

    k_cache, extra_k_cache: [pages, page_size, 1, 584] uint8 or float8, stride(0) the padded page in bytes; one buffer a
    page: page_size x (448 e4m3 + 64 bf16), then page_size x 8 UE8M0 scales. indices [B, ..., k]: token numbers, page x
    page_size + slot; negative or past the cache is skipped, and nothing at or past topk_length [B] is used. attn_sink
    [H]: a logit that takes weight and gives no value; +inf leaves zeros, -inf does nothing.

    Returns out [B, 1, H, 512] bf16 and the natural-log LSE [B, H, 1] fp32, without the sink unless sink_in_lse. A row
    without tokens gives zeros and -inf. ValueError for shapes and strides it cannot read.
    """
    batch, _, heads, dim = q.shape
    if dim != 512 or k_cache.dim() != 4:
        raise ValueError(
            f"q must be [B, 1, H, 512], the cache [pages, page, 1, 584], not {q.shape} and {k_cache.shape}"
        )
    has_extra = extra_k_cache is not None and extra_indices is not None
    q = _aligned(q)
    cache, index = _pages(k_cache), _rows(indices, batch)
    extra_cache = _pages(extra_k_cache) if extra_k_cache is not None and has_extra else cache
    extra_index = _rows(extra_indices, batch) if extra_indices is not None and has_extra else index
    if out is None:
        out = torch.empty((batch, 1, heads, 512), dtype=torch.bfloat16, device=q.device)
    lse = torch.empty((batch, heads, 1), dtype=torch.float32, device=q.device)
    if batch == 0:
        return out, lse

    arch, sms = _device_facts(q.device)
    tokens = index.shape[1] + (extra_index.shape[1] if has_extra else 0)
    choice = choice or tuned_choice(arch, heads, batch, tokens)
    head_blocks = triton.cdiv(heads, BLOCK_H)
    if splits is None:
        splits = split_count(batch * head_blocks, tokens, sms * (choice.per_sm if choice else 2))
    tile = choice.block_t if choice else 16
    chunk = max(triton.cdiv(triton.cdiv(tokens, splits), tile), 1) * tile
    splits = max(triton.cdiv(tokens, chunk), 1)
    part, part_lse, counters = q, lse, index
    if splits > 1:
        part = torch.empty((batch, splits, heads, 512), dtype=partials, device=q.device)
        part_lse = torch.empty((batch, splits, heads), dtype=torch.float32, device=q.device)
        counters = _counters(q.device)
    kernel, config = _sparse_mla_decode_kernel, {}
    merge = choice.merge if choice else "fused"
    fused, early, chained = merge == "fused", merge in ("early", "chained"), merge == "chained"
    if choice is not None:
        kernel = _sparse_mla_decode_kernel.fn
        config = {"BLOCK_T": choice.block_t, "num_warps": choice.num_warps, "num_stages": choice.num_stages}
        if choice.max_registers:
            config["maxnreg"] = choice.max_registers
        if chained:
            config["launch_pdl"] = True
    kernel[(batch * head_blocks, splits)](
        q,
        out,
        lse,
        cache,
        index,
        index if topk_length is None else topk_length,
        extra_cache,
        extra_index,
        extra_index if extra_topk_length is None else extra_topk_length,
        lse if attn_sink is None else attn_sink,
        part,
        part_lse,
        counters,
        (dim**-0.5 if softmax_scale is None else softmax_scale) * 1.4426950408889634,
        cache.stride(0),
        extra_cache.stride(0),
        cache.shape[0] * cache.shape[1],
        extra_cache.shape[0] * extra_cache.shape[1],
        index.shape[1],
        extra_index.shape[1],
        splits,
        chunk,
        triton.next_power_of_2(max(tokens, 1)),
        triton.next_power_of_2(batch),
        q.stride(0),
        q.stride(2),
        out.stride(0),
        out.stride(2),
        lse.stride(0),
        index.stride(0),
        extra_index.stride(0),
        HEADS=heads,
        PAGE=cache.shape[1],
        EXTRA_PAGE=extra_cache.shape[1],
        HAS_LENGTH=topk_length is not None,
        HAS_EXTRA=has_extra,
        HAS_EXTRA_LENGTH=has_extra and extra_topk_length is not None,
        HAS_SINK=attn_sink is not None,
        SINK_IN_LSE=sink_in_lse,
        FUSED=fused,
        EARLY=early,
        CHAINED=chained,
        BLOCK_H=BLOCK_H,
        **config,
    )
    if splits > 1 and not fused:
        _merge_kernel[(batch * heads,)](
            out,
            lse,
            index if topk_length is None else topk_length,
            extra_index if extra_topk_length is None else extra_topk_length,
            lse if attn_sink is None else attn_sink,
            part,
            part_lse,
            heads,
            index.shape[1],
            extra_index.shape[1],
            splits,
            chunk,
            out.stride(0),
            out.stride(2),
            lse.stride(0),
            HAS_LENGTH=topk_length is not None,
            HAS_EXTRA=has_extra,
            HAS_EXTRA_LENGTH=has_extra and extra_topk_length is not None,
            HAS_SINK=attn_sink is not None,
            SINK_IN_LSE=sink_in_lse,
            AT_ONCE=min(triton.next_power_of_2(splits), 16),
            EARLY=early,
            num_warps=2,
            launch_pdl=early,
        )
    return out, lse


def flash_mla_sparse_decode_triton(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SGLang's entry point, with its meaning: out [B, 1, H, 512] and the LSE with the sink in it.

    Heads that only fill a rank (see own_heads) are not attended to: out has them, unwritten, the LSE [B, own, 1] not.
    """
    if head_dim_v != 512:
        raise ValueError(f"head_dim_v is {head_dim_v}; this layout has 512")
    own = own_heads(q.shape[2])
    out = torch.empty((q.shape[0], 1, q.shape[2], 512), dtype=torch.bfloat16, device=q.device)
    _, lse = sparse_mla_decode(
        q[:, :, :own],
        k_cache,
        indices,
        topk_length,
        None if attn_sink is None else attn_sink[:own],
        softmax_scale,
        extra_k_cache,
        extra_indices,
        extra_topk_length,
        sink_in_lse=True,
        out=out[:, :, :own],
    )
    return out, lse


def own_heads(launched: int) -> int:
    """How many of the heads that SGLang hands over are the rank's own, the first ones.

    Where ranks share the heads, SGLang fills those of each up to 64 with memory that it never writes, since FlashMLA
    has no smaller form, and drops what comes out for them (models/deepseek_v4.py of 0.5.17; of 0.5.23 up to 64 rows).
    All are the rank's own without SGLang and without ranks.
    """
    context: Any = sys.modules.get("sglang.srt.runtime_context")
    if context is None or not torch.distributed.is_initialized():
        return launched
    # Asked at every call: SGLang may run a draft model under other ranks.
    return _own_heads(launched, context.get_parallel().attn_tp_size)


@lru_cache
def _own_heads(launched: int, ranks: int) -> int:
    if ranks == 1:
        return launched
    context: Any = sys.modules["sglang.srt.runtime_context"]
    models: Any = sys.modules["sglang.srt.configs.model_config"]
    return min(launched, models.ModelConfig.from_server_args(context.get_server_args()).num_attention_heads // ranks)
