"""Prebuilt cache entries: the keys they have are the keys that the host code's own launches ask for."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.gate.prebuilt import Prebuilt, prebuild
from app.gate.seeding import seed
from app.kernel.patch import PatchedKernel, patch_kernel
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from kernels.geometry import Geometry
from kernels.prebuild import compiling_for
from tests.app.gate.conftest import prebuilt

pytest.importorskip("triton", reason="needs triton; requirements/gate.lock has it")
torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

PAGE_BYTES = 584
# 64 heads over TP 4; sm_120 of the card in question has 188 SMs.
HEADS, TOPK, SMS = 16, 512, 188
# Of the second cache: none, layers compressed by 4, layers compressed by 128.
PAGES = (0, 64, 2)


@pytest.fixture(
    scope="module", params=[("upstream", 120), ("v2", 90), ("fast", 120)], ids=lambda p: f"{p[0]}-sm_{p[1]}"
)
def target(request: pytest.FixtureRequest) -> tuple[str, int]:
    return tuple(request.param)


@pytest.fixture(scope="module")
def patched(target: tuple[str, int]) -> PatchedKernel:
    return patch_kernel(fetch_base(), load_variants().get(target[0]))


@pytest.fixture(scope="module")
def arch(target: tuple[str, int]) -> int:
    return target[1]


@pytest.fixture(scope="module")
def file(patched: PatchedKernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "kernel_file.py"
    path.write_text(patched.text)
    return path


@pytest.fixture(scope="module")
def baked(patched: PatchedKernel, file: Path, arch: int) -> Prebuilt:
    return prebuild(patched.text, str(patched.kernel), file, arch, Geometry(16, 1))


@pytest.fixture
def host(file: Path, arch: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """The kernel file's entry point, whose launches compile for the arch and stop there."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run
    monkeypatch.setattr(JITFunction, "run", lambda self, *a, warmup, **k: run(self, *a, warmup=True, **k))
    spec = importlib.util.spec_from_file_location("kernel_file", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "_device_facts"):
        monkeypatch.setattr(module, "_device_facts", lambda _: (str(arch), SMS))
    with compiling_for(arch), warnings.catch_warnings():
        from triton.runtime import driver

        # The autotuner asks for a benchmark; none is run.
        monkeypatch.setattr(type(driver.active), "get_benchmarker", lambda _: lambda *a, **k: [1.0] * 3, raising=False)
        yield module.flash_mla_sparse_decode_triton


def pages(size: int, count: int = 8) -> Any:
    # SGLang pads a page to a multiple of 576 bytes.
    stride = -(-size * PAGE_BYTES // 576) * 576
    flat = torch.zeros(count * stride, dtype=torch.uint8)
    return flat.as_strided((count, size, 1, PAGE_BYTES), (stride, PAGE_BYTES, PAGE_BYTES, 1)).view(torch.float8_e4m3fn)


def launch(host: Callable[..., Any], batch: int, extra: int) -> None:
    """extra: tokens on a page of the second cache, 0 for none."""
    lengths = torch.ones(batch, dtype=torch.int32)
    more: dict[str, Any] = {}
    if extra:
        indices = torch.zeros(batch, 1, TOPK, dtype=torch.int32)
        more = {"extra_k_cache": pages(extra), "extra_indices": indices, "extra_topk_length": lengths}
    host(
        torch.zeros(batch, 1, HEADS, 512, dtype=torch.bfloat16),
        pages(256),
        torch.zeros(batch, 1, 128, dtype=torch.int32),
        lengths,
        torch.zeros(HEADS),
        512,
        0.1,
        **more,
    )


@pytest.mark.timeout(600)
def test_launches_ask_for_no_entry_that_is_not_baked(
    baked: Prebuilt, host: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(baked, baked.__getitem__, tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for batch in (1, 3, 8, 48, 96):
        for extra in PAGES:
            launch(host, batch, extra)
    assert before
    assert {p.name for p in tmp_path.iterdir()} == before


def test_without_baked_entries_a_launch_compiles(
    host: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launch(host, 1, 0)
    assert list(tmp_path.iterdir())


def test_entries_are_the_same_bytes_in_two_builds(pinned: PatchedKernel, pinned_entries: Prebuilt) -> None:
    assert prebuilt(pinned) == pinned_entries


def test_group_files_hold_no_path_of_this_build(baked: Prebuilt) -> None:
    groups = [json.loads(data)["child_paths"] for name, data in baked.items() if "__grp__" in name]
    assert groups
    assert all(name == place for group in groups for name, place in group.items())
