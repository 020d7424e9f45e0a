from __future__ import annotations

from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)

from kernels.cases import Case, make_inputs
from kernels.layout import empty_cache, page_stride
from kernels.reference import attend
from kernels.sparse_mla_decode import Choice, flash_mla_sparse_decode_triton, sparse_mla_decode

pytestmark = pytest.mark.gpu

CHOICES = [
    None,
    Choice(16, 8, 2),
    Choice(16, 4, 3),
    Choice(32, 4, 1, 1, 0, "chained"),
    Choice(32, 4, 2, 3, 168, "chained"),
    Choice(64, 4, 2, 2, 0, "chained"),
    Choice(64, 4, 2, 2, 0, "early"),
    Choice(64, 4, 2, 2, 0, "apart"),
]
CASES = [
    Case(),
    Case(heads=13, extra=133, topk=200, lengths="ragged", holes="random", sink="mixed"),
    Case(batch=5, topk=513, extra=17, page=64, extra_page=2, holes="lead", sink="normal", lengths="full"),
    Case(heads=64, topk=128, extra=512, lengths="straggler", holes="garbage", sink="normal"),
    Case(batch=96, topk=512, lengths="full", sink="normal", pool=16384),
    Case(batch=8, topk=2048, lengths="short", holes="inner", pool=16384),
]


def errors(
    out: torch.Tensor, lse: torch.Tensor, expected: torch.Tensor, expected_lse: torch.Tensor
) -> tuple[float, float]:
    finite = torch.isfinite(expected_lse)
    assert torch.equal(lse.double()[~finite], expected_lse[~finite])
    gap = (lse.double() - expected_lse)[finite].abs() / (expected_lse[finite].abs() / 10).clamp(min=1)
    return float((out.double() - expected).norm() / expected.norm()), float(gap.max())


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("splits", [None, 1, 3])
def test_output_and_lse_agree_with_float64_and_repeat_bit_for_bit(
    case: Case, choice: Choice | None, splits: int | None
) -> None:
    inputs = make_inputs(case, "cuda").arguments()
    out = torch.full((case.batch, 1, case.heads, 512), torch.nan, dtype=torch.bfloat16, device="cuda")
    got, lse = sparse_mla_decode(**inputs, choice=choice, splits=splits, out=out)
    again, lse_again = sparse_mla_decode(**inputs, choice=choice, splits=splits)
    error, lse_error = errors(got, lse, *attend(**inputs))
    assert error < 4e-3
    assert lse_error < 1e-5
    assert torch.equal(got, again)
    assert torch.equal(lse, lse_again)


@pytest.fixture
def pool_of_nan() -> None:
    """Memory that the workspaces will be cut from, full of NaN."""
    block = torch.full((64, 1 << 20), torch.nan, device="cuda")
    del block


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_graph_replays_are_bit_identical_to_the_eager_call(choice: Choice | None, pool_of_nan: None) -> None:
    sets = [
        make_inputs(Case(batch=8, topk=512, extra=128, sink="normal", lengths="ragged", seed=n), "cuda")
        for n in range(4)
    ]
    eager = [sparse_mla_decode(**s.arguments(), choice=choice) for s in sets]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = [sparse_mla_decode(**s.arguments(), choice=choice) for s in sets]
    for _ in range(3):
        for out, lse in captured:
            out.fill_(torch.nan)
            lse.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        for (out, lse), (expected, expected_lse) in zip(captured, eager, strict=True):
            assert torch.equal(out, expected)
            assert torch.equal(lse, expected_lse)


def test_a_pool_beyond_two_gibibytes_is_addressed_in_64_bits() -> None:
    inputs = make_inputs(Case(pool=512), "cuda")
    pages = (1 << 32) // page_stride(256)
    cache = empty_cache(pages, 256, "cuda")
    cache[-2:] = inputs.k_cache
    moved = {**inputs.arguments(), "k_cache": cache, "indices": inputs.indices + (pages - 2) * 256}
    out, lse = sparse_mla_decode(**moved)
    expected, expected_lse = sparse_mla_decode(**inputs.arguments())
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)


def test_the_entry_point_of_sglang_gives_the_lse_with_the_sink() -> None:
    inputs = make_inputs(Case(topk=128, extra=64, sink="normal", lengths="full"), "cuda")
    out, lse = flash_mla_sparse_decode_triton(
        inputs.q, inputs.k_cache.view(torch.float8_e4m3fn), inputs.indices, inputs.topk_length, inputs.attn_sink, 512,
        512**-0.5, inputs.extra_k_cache, inputs.extra_indices, inputs.extra_topk_length,
    )  # fmt: skip
    error, lse_error = errors(out, lse, *attend(**inputs.arguments(), sink_in_lse=True))
    assert (out.shape, lse.shape) == ((3, 1, 16, 512), (3, 16, 1))
    assert error < 4e-3
    assert lse_error < 1e-5


def test_heads_beside_a_view_are_not_written() -> None:
    case = Case(heads=13)
    inputs = make_inputs(case, "cuda")
    wide_q = torch.full((3, 1, 64, 512), torch.nan, dtype=torch.bfloat16, device="cuda")
    wide_q[:, :, :13] = inputs.q
    wide_out = torch.full_like(wide_q, 7.0)
    arguments = {**inputs.arguments(), "q": wide_q[:, :, :13]}
    out, _ = sparse_mla_decode(**arguments, out=wide_out[:, :, :13], splits=2)
    assert torch.equal(out, sparse_mla_decode(**inputs.arguments(), splits=2)[0])
    assert bool((wide_out[:, :, 13:] == 7.0).all())


def test_lengths_changed_under_a_graph_are_followed() -> None:
    inputs = make_inputs(replace(Case(batch=4, topk=256), lengths="full"), "cuda")
    graph = torch.cuda.CUDAGraph()
    sparse_mla_decode(**inputs.arguments())
    with torch.cuda.graph(graph):
        out, _ = sparse_mla_decode(**inputs.arguments())
    assert inputs.topk_length is not None
    inputs.topk_length.copy_(torch.tensor([0, 1, 33, 256], dtype=torch.int32))
    graph.replay()
    expected, _ = attend(**inputs.arguments())
    assert float((out.double() - expected).norm() / expected.norm()) < 4e-3
    assert not bool(out[0].any())
