"""The kernel in Triton's interpreter: python -m tests.kernels.interpreted prints one JSON object of findings by case.

A process of its own, since Triton decides at import whether it interprets. The interpreter has neither inline assembly
nor bf16 arithmetic: the upcast and the pin are swapped, tiles are fp32, so that errors are those of the logic alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from kernels import sparse_mla_decode as kernel
from kernels.cases import Case, Inputs, make_inputs
from kernels.layout import page_parts
from kernels.reference import attend

SMALL = Case(batch=2, topk=32, pool=256, page=64)
TILE = kernel.Choice(16, 4, 1)
APART = TILE._replace(merge="apart")


@triton.jit  # type: ignore[untyped-decorator]
def _upcast(raw: Any) -> Any:
    return raw.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _identity(x: Any) -> Any:
    return x


kernel._upcast, kernel._pin, kernel.COMPUTE = _upcast, _identity, tl.constexpr(tl.float32)


def run(inputs: dict[str, Any], choice: kernel.Choice = TILE, splits: int = 1, **more: Any) -> list[torch.Tensor]:
    """Output and LSE in fp32, the output's memory poisoned before."""
    batch, _, heads, _ = inputs["q"].shape
    out = more.pop("out", torch.full((batch, 1, heads, 512), torch.nan))
    return list(
        kernel.sparse_mla_decode(**inputs, choice=choice, splits=splits, partials=torch.float32, out=out, **more)
    )


def against_float64(case: Case, choice: kernel.Choice = TILE, splits: int = 1, **more: Any) -> dict[str, Any]:
    """Relative error of the output, error of the LSE, and whether infinities are where they belong."""
    inputs = make_inputs(case).arguments()
    return compare(run(inputs, choice, splits, **more), attend(**inputs, **more))


def compare(found: list[torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]) -> dict[str, Any]:
    """Findings about one result."""
    (out, lse), (expected, expected_lse) = found, wanted
    finite = torch.isfinite(expected_lse)
    gap = (lse.double() - expected_lse)[finite].abs() / (expected_lse[finite].abs() / 10).clamp(min=1)
    return {
        "error": float((out.double() - expected).norm() / expected.norm().clamp(min=1e-30)),
        "lse_error": float(gap.max()) if finite.any() else 0.0,
        "infinities": bool(torch.equal(lse.double()[~finite], expected_lse[~finite])),
    }


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> dict[str, Any]:
    """Whether two results agree bit for bit."""
    return {"same": all(torch.equal(a, b) for a, b in zip(first, second, strict=True))}


def unreferenced_slot_zero() -> dict[str, Any]:
    """Slot 0 changed from NaN to numbers, where the lists hold -1 and never 0."""
    inputs = make_inputs(replace(SMALL, holes="random")).arguments()
    inputs["indices"][inputs["indices"] == 0] = -1
    before = run(inputs)
    for part in page_parts(inputs["k_cache"]):
        part[0, 0] = 0x38
    return same(before, run(inputs))


def strided_pages() -> dict[str, Any]:
    """Pages that are a view of wider rows: the stride is the buffer's, not the payload's."""
    inputs = make_inputs(SMALL).arguments()
    cache = inputs["k_cache"]
    pages, stride = cache.shape[0], cache.stride(0)
    wide = torch.full((pages, stride + 4096), 0xFF, dtype=torch.uint8)
    wide[:, :stride] = cache.as_strided((pages, stride), (stride, 1))
    moved = wide.as_strided(cache.shape, (stride + 4096, *cache.stride()[1:]))
    return same(run(inputs), run({**inputs, "k_cache": moved}))


def narrowed_extra_indices() -> dict[str, Any]:
    """The second list as a slice of wider rows."""
    inputs = make_inputs(replace(SMALL, extra=16, extra_page=2)).arguments()
    wide = torch.full((2, 1, 64), 7, dtype=torch.int32)
    wide[..., :16] = inputs["extra_indices"]
    return same(run(inputs), run({**inputs, "extra_indices": wide[..., :16]}))


def guard_heads() -> dict[str, Any]:
    """q and out as views of 64-head buffers: nothing beside the view is read or written."""
    inputs = make_inputs(replace(SMALL, heads=13)).arguments()
    q = torch.full((2, 1, 64, 512), torch.nan, dtype=torch.bfloat16)
    q[:, :, :13] = inputs["q"]
    out = torch.full((2, 1, 64, 512), 7.0)
    found = run({**inputs, "q": q[:, :, :13]}, splits=2, out=out[:, :, :13])
    return same(run(inputs, splits=2), found) | {"guards": bool((out[:, :, 13:] == 7.0).all())}


def wrong_slots() -> dict[str, Any]:
    """Entries past the end of the cache are skipped as -1 is."""
    inputs = make_inputs(SMALL).arguments()
    wrong = inputs["indices"].clone()
    inputs["indices"][..., ::3] = -1
    wrong[..., ::3] = 256
    wrong[..., 3] = 2**31 - 1
    return same(run(inputs), run({**inputs, "indices": wrong}))


def scale_codes() -> dict[str, Any]:
    """Code 0 is 2^-127, and code 255 makes NaN."""
    inputs = make_inputs(SMALL).arguments()
    _, scales = page_parts(inputs["k_cache"])
    scales[:, ::4, 2] = 0
    tiny = compare(run(inputs), attend(**inputs))
    scales[:] = 255
    return tiny | {"nan": bool(run(inputs)[0].isnan().all())}


def finer_split_counts() -> dict[str, Any]:
    """Workspaces full of NaN, 7 splits of which the last are empty, run twice: the counters were left at zero."""
    inputs = make_inputs(replace(SMALL, topk=40, lengths="ragged", batch=3)).arguments()
    fresh = torch.empty
    torch.empty = lambda *a, **k: fresh(*a, **k).fill_(torch.nan)
    first, second = run(inputs, splits=7), run(inputs, splits=7)
    torch.empty = fresh
    return same(first, second) | compare(first, attend(**inputs))


def tuned_choice() -> dict[str, Any]:
    """A row of TUNED takes the place of the autotune list."""
    inputs = make_inputs(SMALL).arguments()
    kernel.TUNED = {"cpu": [[8, 0, 0, 64, 4, 1], [0, 2, 64, 16, 4, 1, 2, 0, "apart"]]}
    chosen = kernel.tuned_choice("cpu", 16, 2, 32)
    found = kernel.sparse_mla_decode(**inputs, out=torch.empty(2, 1, 16, 512))
    kernel.TUNED = {}
    return compare(list(found), attend(**inputs)) | {"chosen": list(chosen or ())}


def entry_point() -> dict[str, Any]:
    """The function that SGLang calls, through the autotuner: the LSE holds the sink."""
    inputs: Inputs = make_inputs(replace(SMALL, extra=16, sink="normal", lengths="full"))
    out, lse = kernel.flash_mla_sparse_decode_triton(
        inputs.q, inputs.k_cache.view(torch.float8_e4m3fn), inputs.indices, inputs.topk_length, inputs.attn_sink, 512,
        512**-0.5, inputs.extra_k_cache, inputs.extra_indices, inputs.extra_topk_length,
    )  # fmt: skip
    return compare([out, lse], attend(**inputs.arguments(), sink_in_lse=True)) | {"shape": [*out.shape, *lse.shape]}


class Ranks:
    """As much of SGLang's runtime context as the kernel reads: two ranks that share 32 heads."""

    attn_tp_size = 2
    num_attention_heads = 32

    def get_parallel(self) -> Ranks:
        return self

    get_server_args = get_parallel

    @property
    def ModelConfig(self) -> Ranks:
        return self

    def from_server_args(self, _: Ranks) -> Ranks:
        return self


def filled_up() -> dict[str, Any]:
    """SGLang's call on a rank of 16 heads filled up to 64 with NaN, beside the call for the 16 alone."""
    inputs: Inputs = make_inputs(replace(SMALL, extra=16, sink="normal", lengths="full"))

    def called(q: torch.Tensor, sink: torch.Tensor | None) -> list[torch.Tensor]:
        return list(
            kernel.flash_mla_sparse_decode_triton(
                q, inputs.k_cache.view(torch.float8_e4m3fn), inputs.indices, inputs.topk_length, sink, 512, 512**-0.5,
                inputs.extra_k_cache, inputs.extra_indices, inputs.extra_topk_length,
            )
        )  # fmt: skip

    alone, lse = called(inputs.q, inputs.attn_sink)
    assert inputs.attn_sink is not None
    wide = torch.full((SMALL.batch, 1, 64, 512), torch.nan, dtype=inputs.q.dtype)
    wide[:, :, :16] = inputs.q
    names = ("sglang.srt.runtime_context", "sglang.srt.configs.model_config")
    sglang: Any = Ranks()
    sys.modules |= dict.fromkeys(names, sglang)
    without_ranks = kernel.own_heads(64)
    torch.distributed.is_initialized = lambda: True
    out, lse_again = called(wide, torch.nn.functional.pad(inputs.attn_sink, (0, 48)))
    for name in names:
        del sys.modules[name]
    found = same([alone, lse], [out[:, :, :16], lse_again])
    return found | {"shape": list(out.shape), "without_ranks": without_ranks}


GRID: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: against_float64(SMALL),
    "two caches, sinks of all kinds, ragged": lambda: against_float64(
        replace(SMALL, batch=3, heads=13, extra=20, extra_page=2, lengths="ragged", holes="random", sink="mixed")
    ),
    "the same in splits": lambda: against_float64(
        replace(SMALL, batch=3, heads=13, extra=20, extra_page=2, lengths="ragged", holes="random", sink="mixed"),
        TILE,
        3,
    ),
    "the same merged apart": lambda: against_float64(
        replace(SMALL, batch=3, heads=13, extra=20, extra_page=2, lengths="ragged", holes="random", sink="mixed"),
        APART,
        3,
    ),
    "leading holes": lambda: against_float64(replace(SMALL, holes="lead")),
    "inner holes": lambda: against_float64(replace(SMALL, holes="inner")),
    "trailing holes": lambda: against_float64(replace(SMALL, holes="trail")),
    "all holes": lambda: against_float64(replace(SMALL, holes="all", sink="normal")),
    "no tokens": lambda: against_float64(replace(SMALL, lengths="zero", extra=16)),
    "garbage past the lengths": lambda: against_float64(replace(SMALL, lengths="short", holes="garbage", extra=16)),
    "page of 256 beside 64": lambda: against_float64(replace(SMALL, page=256, extra=16, extra_page=64)),
    "one entry, one head": lambda: against_float64(replace(SMALL, topk=1, heads=1)),
    "seventeen entries, eight heads": lambda: against_float64(replace(SMALL, topk=17, heads=8)),
    "133 entries, 24 heads": lambda: against_float64(replace(SMALL, batch=1, topk=133, heads=24), TILE, 2),
    "sink in the LSE": lambda: against_float64(replace(SMALL, sink="mixed", lengths="zero"), sink_in_lse=True),
    "tile of 32": lambda: against_float64(replace(SMALL, topk=40), kernel.Choice(32, 4, 1)),
    "slot zero": unreferenced_slot_zero,
    "strided pages": strided_pages,
    "narrowed extra indices": narrowed_extra_indices,
    "guard heads": guard_heads,
    "wrong slots": wrong_slots,
    "scale codes": scale_codes,
    "many splits": finer_split_counts,
    "tuned choice": tuned_choice,
    "entry point": entry_point,
    "filled up": filled_up,
}

if __name__ == "__main__":
    print(json.dumps({name: find() for name, find in GRID.items()}))
