"""Problems for tests and timings from one generator, so that every timed shape is also a checked one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from kernels.layout import HEAD_DIM, Tokens, empty_cache, pack, quantise

Lengths = Literal["none", "full", "short", "ragged", "straggler", "zero"]
Holes = Literal["none", "lead", "inner", "trail", "random", "all", "garbage"]


@dataclass(frozen=True, slots=True)
class Case:
    """One problem. pool: slots of each cache that hold tokens; extra 0 means one cache only."""

    batch: int = 3
    heads: int = 16
    topk: int = 64
    extra: int = 0
    page: int = 256
    extra_page: int = 64
    pool: int = 1024
    lengths: Lengths = "none"
    holes: Holes = "none"
    sink: Literal["none", "normal", "mixed"] = "none"
    seed: int = 0

    def __str__(self) -> str:
        extra = f"+{self.extra}@{self.extra_page}" if self.extra else ""
        return f"b{self.batch}-h{self.heads}-k{self.topk}{extra}-p{self.page}-{self.lengths}-{self.holes}-{self.sink}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of one call, by the names of sparse_mla_decode."""

    q: torch.Tensor
    k_cache: torch.Tensor
    indices: torch.Tensor
    topk_length: torch.Tensor | None
    attn_sink: torch.Tensor | None
    extra_k_cache: torch.Tensor | None
    extra_indices: torch.Tensor | None
    extra_topk_length: torch.Tensor | None

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments."""
        return {name: getattr(self, name) for name in self.__slots__}


def make_inputs(case: Case, device: torch.device | str = "cpu") -> Inputs:
    """Fresh random inputs of a case; slots that no index names hold NaN bytes."""
    draw = torch.Generator(device).manual_seed(case.seed)
    q = torch.randn((case.batch, 1, case.heads, HEAD_DIM), generator=draw, device=device).to(torch.bfloat16)
    indices, length = _lists(case, case.topk, draw)
    cache = _cache(case, case.page, indices, draw)
    extra_cache = extra_indices = extra_length = None
    if case.extra:
        extra_indices, extra_length = _lists(case, case.extra, draw)
        extra_cache = _cache(case, case.extra_page, extra_indices, draw)
    sink = None
    if case.sink != "none":
        sink = torch.randn(case.heads, generator=draw, device=device)
        if case.sink == "mixed":
            sink[0::3], sink[1::3] = torch.inf, -torch.inf
    return Inputs(q, cache, indices, length, sink, extra_cache, extra_indices, extra_length)


def timed_inputs(case: Case, sets: int, device: torch.device | str) -> list[Inputs]:
    """Several input sets of one case over the same caches, drawn at random from the whole pool, to be used in turn."""
    draw = torch.Generator(device).manual_seed(case.seed)
    cache = _filled_cache(case.pool, case.page, draw)
    extra_cache = _filled_cache(case.pool, case.extra_page, draw) if case.extra else None
    return [_timed_set(case, cache, extra_cache, draw) for _ in range(sets)]


def _timed_set(case: Case, cache: torch.Tensor, extra_cache: torch.Tensor | None, draw: torch.Generator) -> Inputs:
    def entries(count: int) -> torch.Tensor:
        shape = (case.batch, 1, count)
        return torch.randint(0, case.pool, shape, generator=draw, device=draw.device, dtype=torch.int32)

    q = torch.randn((case.batch, 1, case.heads, HEAD_DIM), generator=draw, device=draw.device).to(torch.bfloat16)
    sink = torch.randn(case.heads, generator=draw, device=draw.device)
    length = _lengths(case, case.topk, draw)
    if extra_cache is None:
        return Inputs(q, cache, entries(case.topk), length, sink, None, None, None)
    extra_length = _lengths(case, case.extra, draw)
    return Inputs(q, cache, entries(case.topk), length, sink, extra_cache, entries(case.extra), extra_length)


def _filled_cache(pool: int, page: int, draw: torch.Generator) -> torch.Tensor:
    cache = empty_cache(-(-pool // page), page, draw.device)
    values = torch.randn((pool, HEAD_DIM), generator=draw, device=draw.device)
    return pack(quantise(values), page, cache)


def _cache(case: Case, page: int, indices: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    device = indices.device
    cache = empty_cache(-(-case.pool // page), page, device)
    # 0xFF is NaN in e4m3, in bf16 and in UE8M0.
    cache.as_strided((cache.shape[0], cache.stride(0)), (cache.stride(0), 1)).fill_(0xFF)
    values = torch.randn((case.pool, HEAD_DIM), generator=draw, device=device)
    values *= torch.exp2(torch.randint(-6, 7, (case.pool, 1), generator=draw, device=device) / 2)
    tokens = quantise(values)
    named = torch.zeros(case.pool, dtype=torch.bool, device=device)
    named[indices[(indices >= 0) & (indices < case.pool)].long()] = True
    nope, scales, rope = (x.view(torch.uint8).clone() for x in tokens)
    for part in (nope, scales, rope):
        part[~named] = 0xFF
    return pack(Tokens(nope.view(torch.float8_e4m3fn), scales, rope.view(torch.bfloat16)), page, cache)


def _lists(case: Case, topk: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor | None]:
    device = draw.device
    order = torch.rand((case.batch, case.pool), generator=draw, device=device).argsort(1)
    columns = torch.arange(topk, device=device) % case.pool
    # Half of the pool stays unnamed, so that there is something poisoned beside every token.
    indices = (order[:, columns] // 2 * 2).to(torch.int32)
    length = _lengths(case, topk, draw)
    position = torch.arange(topk, device=device)
    hole = {
        "none": position < 0,
        "lead": position < topk // 2,
        "inner": (position > topk // 4) & (position < topk // 2),
        "trail": position >= topk // 2,
        "all": position >= 0,
        "garbage": position < 0,
        "random": torch.rand((case.batch, topk), generator=draw, device=device) < 0.5,
    }[case.holes]
    indices[hole.expand(case.batch, topk)] = -1
    if case.holes == "garbage" and length is not None:
        past = position[None, :] >= length[:, None]
        wrong = torch.where(position % 2 == 0, 2**31 - 1, 1).to(torch.int32)
        indices = torch.where(past, wrong, indices)
    return indices.view(case.batch, 1, topk), length


def _lengths(case: Case, topk: int, draw: torch.Generator) -> torch.Tensor | None:
    if case.lengths == "none":
        return None
    some = torch.randint(0, topk + 1, (case.batch,), generator=draw, device=draw.device)
    rows = torch.arange(case.batch, device=draw.device)
    length = {
        "full": torch.full_like(some, topk),
        "zero": torch.zeros_like(some),
        "short": torch.full_like(some, max(topk // 4, 1)),
        "ragged": torch.where(rows % 3 == 2, 0, some),
        "straggler": torch.where(rows == 0, topk, max(topk // 16, 1)),
    }[case.lengths]
    return length.to(torch.int32)
