"""The paged FP8 cache of DeepSeek-V4: per token 448 e4m3 and 64 bf16 values, UE8M0 scales at the end of the page."""

from __future__ import annotations

from typing import NamedTuple

import torch

NOPE_DIM = 448
ROPE_DIM = 64
HEAD_DIM = NOPE_DIM + ROPE_DIM
GROUP = 64
GROUPS = NOPE_DIM // GROUP
BODY_BYTES = NOPE_DIM + 2 * ROPE_DIM
# Seven scales and a byte of padding, so that one 8-byte load brings them all.
SCALE_BYTES = 8
TOKEN_BYTES = BODY_BYTES + SCALE_BYTES
SCALE_BIAS = 127
E4M3_MAX = 448.0


class Tokens(NamedTuple):
    """N tokens as stored: nope [N, 448] float8_e4m3fn, scales [N, 7] uint8 (UE8M0), rope [N, 64] bfloat16."""

    nope: torch.Tensor
    scales: torch.Tensor
    rope: torch.Tensor


def page_stride(page_size: int) -> int:
    """Bytes from one page to the next: the payload, padded to a multiple of 576."""
    return -(-page_size * TOKEN_BYTES // BODY_BYTES) * BODY_BYTES


def quantise(values: torch.Tensor) -> Tokens:
    """Tokens of values [N, 512]: per group of 64 the least power of two that brings the group within e4m3's range."""
    groups = values[:, :NOPE_DIM].double().reshape(-1, GROUPS, GROUP)
    exponent = torch.ceil(torch.log2(groups.abs().amax(-1).clamp(min=2.0**-110) / E4M3_MAX))
    nope = (groups / torch.exp2(exponent).unsqueeze(-1)).float().to(torch.float8_e4m3fn)
    return Tokens(nope.flatten(1), (exponent + SCALE_BIAS).to(torch.uint8), values[:, NOPE_DIM:].to(torch.bfloat16))


def dequantise(tokens: Tokens) -> torch.Tensor:
    """The exact values [N, 512] as float64. Scale code 0 is 2^-127 and 255 is NaN, as in the OCP UE8M0 format."""
    scale = torch.exp2(tokens.scales.double() - SCALE_BIAS)
    scale[tokens.scales == 255] = torch.nan
    nope = tokens.nope.double().reshape(-1, GROUPS, GROUP) * scale.unsqueeze(-1)
    return torch.cat([nope.flatten(1), tokens.rope.double()], 1)


def empty_cache(pages: int, page_size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """An uninitialised cache [pages, page_size, 1, 584] uint8, a view without the padding: stride(0) is the page's."""
    raw = torch.empty((pages, page_stride(page_size)), dtype=torch.uint8, device=device)
    return raw[:, : page_size * TOKEN_BYTES].view(pages, page_size, 1, TOKEN_BYTES)


def page_parts(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a cache as stored: bodies [pages, page_size, 576] and scales [pages, page_size, 8], both uint8."""
    pages, size = cache.shape[:2]
    raw = cache.view(torch.uint8)
    body = raw.as_strided((pages, size, BODY_BYTES), (raw.stride(0), BODY_BYTES, 1))
    footer = raw.storage_offset() + size * BODY_BYTES
    return body, raw.as_strided((pages, size, SCALE_BYTES), (raw.stride(0), SCALE_BYTES, 1), footer)


def pack(tokens: Tokens, page_size: int, cache: torch.Tensor | None = None) -> torch.Tensor:
    """Write tokens into the first slots of a cache (by default one just large enough) and return it."""
    count = tokens.nope.shape[0]
    if cache is None:
        cache = empty_cache(-(-count // page_size), page_size, tokens.nope.device)
    body, scales = page_parts(cache)
    at = torch.arange(count, device=cache.device)
    page, slot = at // page_size, at % page_size
    body[page, slot] = torch.cat([tokens.nope.view(torch.uint8), tokens.rope.contiguous().view(torch.uint8)], 1)
    scales[page, slot, :GROUPS] = tokens.scales
    return cache


def unpack(cache: torch.Tensor, slots: torch.Tensor | None = None) -> Tokens:
    """The tokens at the given slot numbers (page x page_size + slot), by default all of them in order."""
    size = cache.shape[1]
    if slots is None:
        slots = torch.arange(cache.shape[0] * size, device=cache.device)
    body, scales = page_parts(cache)
    rows = body[slots // size, slots % size]
    return Tokens(
        rows[:, :NOPE_DIM].contiguous().view(torch.float8_e4m3fn),
        scales[slots // size, slots % size, :GROUPS],
        rows[:, NOPE_DIM:].contiguous().view(torch.bfloat16),
    )
