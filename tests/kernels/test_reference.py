from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from kernels.cases import Case, make_inputs
from kernels.layout import dequantise, unpack
from kernels.reference import attend

pytestmark = pytest.mark.kernel

CASE = Case(batch=2, heads=3, topk=8, pool=64, page=64)


def test_one_token_gives_its_value_and_its_score() -> None:
    inputs = make_inputs(replace(CASE, topk=1))
    out, lse = attend(**inputs.arguments())
    key = dequantise(unpack(inputs.k_cache, inputs.indices[0, 0].long()))[0]
    assert torch.equal(out[0, 0], key.expand(3, 512))
    torch.testing.assert_close(lse[0, :, 0], inputs.q[0, 0].double() @ key * 512**-0.5)


def test_lists_in_two_caches_are_one_list() -> None:
    inputs = make_inputs(CASE)
    whole, whole_lse = attend(**inputs.arguments())
    left, right = inputs.indices[..., :4], inputs.indices[..., 4:]
    parts, parts_lse = attend(
        **{**inputs.arguments(), "indices": left, "extra_k_cache": inputs.k_cache, "extra_indices": right}
    )
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(parts_lse, whole_lse)


def test_sink_takes_weight_and_gives_no_value() -> None:
    inputs = make_inputs(CASE)
    plain, lse = attend(**inputs.arguments())
    sunk, sunk_lse = attend(**{**inputs.arguments(), "attn_sink": lse[0, :, 0]})
    torch.testing.assert_close(sunk[0], plain[0] / 2)
    assert torch.equal(sunk_lse, lse)


@pytest.mark.parametrize(("sink", "share"), [(torch.inf, 0.0), (-torch.inf, 1.0)])
def test_infinite_sinks_take_all_or_nothing(sink: float, share: float) -> None:
    inputs = make_inputs(CASE).arguments()
    plain, _ = attend(**inputs)
    assert torch.equal(attend(**{**inputs, "attn_sink": torch.full((3,), sink)})[0], plain * share)


def test_row_without_tokens_is_zero_with_an_lse_of_minus_infinity() -> None:
    out, lse = attend(**make_inputs(replace(CASE, holes="all")).arguments())
    assert not bool(out.any())
    assert bool(torch.isneginf(lse).all())


def test_poisoned_slots_are_never_named() -> None:
    inputs = make_inputs(replace(CASE, lengths="ragged", holes="random"))
    out, _ = attend(**inputs.arguments())
    assert bool(out.isfinite().all())
    assert bool(dequantise(unpack(inputs.k_cache))[1::2].isnan().any())
