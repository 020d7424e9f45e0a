from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from kernels.layout import Tokens, dequantise, empty_cache, pack, page_parts, page_stride, quantise, unpack

pytestmark = pytest.mark.kernel


def random_tokens(count: int) -> Tokens:
    draw = torch.Generator().manual_seed(count)
    byte = torch.randint(0, 0x7F, (count, 448), generator=draw, dtype=torch.uint8)
    scales = torch.randint(100, 150, (count, 7), generator=draw, dtype=torch.uint8)
    return Tokens(byte.view(torch.float8_e4m3fn), scales, torch.randn((count, 64), generator=draw).to(torch.bfloat16))


@pytest.mark.parametrize(("page_size", "stride"), [(256, 149_760), (64, 37_440), (2, 1_728)])
def test_page_is_padded_to_a_multiple_of_576(page_size: int, stride: int) -> None:
    assert page_stride(page_size) == stride
    assert empty_cache(3, page_size).stride(0) == stride


@pytest.mark.parametrize("page_size", [256, 64, 2])
def test_what_is_packed_comes_back_bit_for_bit(page_size: int) -> None:
    tokens = random_tokens(page_size + 1)
    found = unpack(pack(tokens, page_size), torch.arange(page_size + 1))
    for stored, given in zip(found, tokens, strict=True):
        assert torch.equal(stored.view(torch.uint8), given.view(torch.uint8))


def test_scales_lie_behind_the_bodies_of_the_page() -> None:
    cache = pack(random_tokens(64), 64)
    raw = cache.as_strided((1, cache.stride(0)), (cache.stride(0), 1))
    body, scales = page_parts(cache)
    assert torch.equal(raw[0, : 64 * 576].view(64, 576), body[0])
    assert torch.equal(raw[0, 64 * 576 : 64 * 584].view(64, 8), scales[0])


def test_quantised_values_are_within_half_a_step_of_e4m3() -> None:
    values = torch.randn((32, 512), generator=torch.Generator().manual_seed(0)) * 100
    found = dequantise(quantise(values))
    groups = values[:, :448].view(32, 7, 64)
    step = groups.abs().amax(-1, keepdim=True) / 16
    assert bool(((found[:, :448].view(32, 7, 64) - groups).abs() <= step).all())


def test_scale_code_zero_is_a_subnormal_and_255_is_nan() -> None:
    tokens = random_tokens(2)
    tokens.scales[0], tokens.scales[1] = 0, 255
    found = dequantise(tokens)
    assert torch.equal(found[0, :448], tokens.nope[0].double() * 2.0**-127)
    assert bool(found[1, :448].isnan().all())


def test_cache_with_a_wider_stride_is_read_by_its_stride() -> None:
    cache = pack(random_tokens(128), 64)
    wide = torch.zeros((2, cache.stride(0) + 576), dtype=torch.uint8)
    wide[:, : cache.stride(0)] = cache.as_strided((2, cache.stride(0)), (cache.stride(0), 1))
    moved = wide.as_strided(cache.shape, (wide.stride(0), *cache.stride()[1:]))
    assert torch.equal(dequantise(unpack(moved)), dequantise(unpack(cache)))
