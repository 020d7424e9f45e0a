"""The pinned tile of our kernel survives the compiler, under every Triton that serves it.

Unpinned, Triton moves the upcast past the layout change: the operands then come by plain loads instead of ldmatrix.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.geometry import default_geometry
from kernels.resources import Resources, compile_all
from kernels.signature import load_signature
from kernels.toolchain import Toolchain, ToolchainError, installed_toolchain, toolchain_of
from tests.kernels.samples import Config

KERNEL = "_sparse_mla_decode_kernel"
SOURCE = (Path(__file__).parents[2] / "kernels" / "sparse_mla_decode.py").read_text()
PINNED = Config({"BLOCK_T": 16}, num_warps=4, num_stages=2)


def _compile(arch: int, toolchain: Toolchain, source: str = SOURCE) -> list[Resources]:
    return compile_all(source, KERNEL, load_signature(KERNEL), [PINNED], arch, default_geometry(), toolchain)


def _check(found: Resources) -> None:
    assert found.error is None
    assert (found.spill_bytes, found.byte_loads) == (0, 0), found
    assert found.matrix_loads >= found.mma > 0
    assert found.wide_loads + found.cp_async > 0
    assert found.ctas_per_sm >= 2


@pytest.mark.parametrize("arch", [120, 90])
def test_pinned_tile_neither_spills_nor_loads_bytes(arch: int) -> None:
    for found in _compile(arch, installed_toolchain()):
        _check(found)


# The Tritons of the SGLang releases that are pinned.
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6.0", "3.8.0"])
@pytest.mark.parametrize("arch", [120, 90])
def test_pinned_tile_survives_the_tritons_that_serve_it(arch: int, version: str) -> None:
    try:
        toolchain = toolchain_of(version)
    except ToolchainError as error:
        pytest.skip(str(error))
    for found in _compile(arch, toolchain):
        _check(found)


def test_guard_sees_a_tile_that_is_not_pinned() -> None:
    pure = SOURCE.replace("is_pure=False", "is_pure=True")
    assert pure != SOURCE
    (found, *_) = _compile(120, installed_toolchain(), pure)
    assert found.matrix_loads < found.mma
