"""A trace of the service held against what was predicted; the request for it against the release's own source."""

from __future__ import annotations

import ast
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.engine.sglang import tracing
from app.engine.sglang.traced import Expected, Origin, read_other, read_trace
from app.engine.sglang.tracing import keep, profile_request
from app.errors import NotReadyError, ProofError
from app.gate.report import GateReport
from app.gate.triton_cache import CacheEntry
from app.kernel.upstream import default_cache, fetch_wheel, pinned
from app.kernel.variant import KernelConfig
from kernels.geometry import Geometry
from kernels.resources import Resources
from tests.kernels.made_trace import STOCK, launch, write_trace

OWN, MERGE = "_sparse_mla_decode_kernel", "_merge_kernel"
CONFIG = KernelConfig({"BLOCK_T": 32}, 8, 2)
BUILT = Resources(CONFIG, 90, "3.6.0", shared_bytes=16384, registers=255, num_warps=8)
# As a trace of SGLang 0.5.17 on an H200 names them, the first cut short.
FLASHMLA = (
    (
        "void sm90::decode::sparse_fp8::flash_fwd_splitkv_mla_fp8_sparse_kernel<sm90::KernelTemplate<(ModelType)1>",
        169.0,
    ),
    ("void smxx::decode::flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, 512, 8, 160, 256>(CombineParams)", 12.0),
    ("smxx::decode::get_mla_metadata_kernel(GetDecodeSchedMetaParams)", 106.0),
    ("void (anonymous namespace)::fused_k_norm_rope_flashmla<__nv_bfloat16, 512l>(FusedKNormRopeParams)", 10.0),
)
ENTRY = CacheEntry("KEY", 8, 2, 16384, "ab", 90, 240, "cd", True)


def expected(**changes: Any) -> Expected:
    report = GateReport("upstream", "", STOCK, 90, "3.6.0", Geometry(16, 1), "", (), (BUILT,))
    return replace(Expected(report, 16, ()), **changes)


def origin(**changes: Any) -> Origin:
    return replace(Origin("upstream", 90, [os.getpid()], 0.0), **changes)


def host(pid: int = os.getpid(), name: str = "cudaGraphLaunch") -> dict[str, Any]:
    return {"cat": "cuda_runtime", "name": name, "pid": pid, "dur": 1}


def test_launches_are_told_a_decode_step(tmp_path: Path) -> None:
    events = [*[host()] * 2, *[launch(dur=30.0)] * 6, launch(name="gemm", dur=60.0)]
    found = read_trace(write_trace(tmp_path / "t.json.gz", *events), origin(), expected(), 8)
    (seen,) = found["launches"]
    assert (seen["config"], seen["count"], seen["per_step"], seen["us_per_step"]) == ("(32,8,2)", 6, 3.0, 90.0)
    assert (seen["grid"], seen["block"], seen["shared_bytes"]) == ((8, 16, 1), (256, 1, 1), 16384)
    assert (found["steps"], found["gpu_us_per_step"], found["share_of_gpu_time"]) == (2, 120.0, 0.75)


def test_kernels_launched_beside_the_variants_count_with_it(tmp_path: Path) -> None:
    report = replace(expected().report, kernel=OWN, resources=(replace(BUILT, kernel=OWN),))
    events = [launch(name, dur=30.0, grid=(8, 1, 1)) for name in (OWN, MERGE, "gemm")]
    found = read_trace(write_trace(tmp_path / "t.json.gz", host(), *events), origin(), expected(report=report), 8)
    assert [(seen["kernel"], seen["us_per_step"]) for seen in found["beside"]] == [(MERGE, 30.0)]
    assert found["share_of_gpu_time"] == pytest.approx(2 / 3, abs=1e-4)


@pytest.mark.parametrize(
    ("event", "changes", "message"),
    [
        (launch(shared=32768), {}, "are of no config"),
        (launch(grid=(8, 64, 1)), {}, "launched for 64 heads, not for 16"),
        (launch(name="gemm"), {}, "upstream does not run in decode"),
        (launch(), {"since": 9e9}, "older than the service's start"),
        (launch(), {"pids": [1]}, "recorded in process .*, which is none of the service's"),
        (launch(registers=240), {}, "are of no config"),
    ],
)
def test_a_trace_that_speaks_against_the_start_is_no_proof(
    tmp_path: Path, event: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProofError, match=message):
        read_trace(write_trace(tmp_path / "t.json.gz", host(), event), origin(**changes), expected(), 8)


def test_another_gpus_trace_is_no_proof(tmp_path: Path) -> None:
    card = {"name": "RTX", "computeMajor": 12, "computeMinor": 0}
    with pytest.raises(ProofError, match="recorded on RTX, sm_120, not on sm_90"):
        read_trace(write_trace(tmp_path / "t.json.gz", launch(), device=card), origin(), expected(), 8)


def test_time_in_which_ranks_wait_for_each_other_is_no_work(tmp_path: Path) -> None:
    exchanges = [launch(name=f"ncclDevKernel_{kind}_RING_LL(Args)", dur=900.0) for kind in ("AllReduce", "AllGather")]
    events = [host(), launch(dur=30.0), launch(name="gemm", dur=60.0), *exchanges]
    found = read_trace(write_trace(tmp_path / "t.json.gz", *events), origin(), expected(), 8)
    assert (found["gpu_us_per_step"], found["exchange_us_per_step"]) == (90.0, 1800.0)
    assert found["share_of_gpu_time"] == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize("name", ["cross_device_reduce_1stage<half>(T*)", "allreduce_fusion_kernel", "reduce_scatter"])
def test_every_kernel_of_an_exchange_is_left_out_of_the_work(tmp_path: Path, name: str) -> None:
    path = write_trace(tmp_path / "t.json.gz", host(), launch(dur=30.0), launch(name=name, dur=900.0))
    assert read_trace(path, origin(), expected(), 8)["gpu_us_per_step"] == 30.0


@pytest.mark.parametrize(
    ("own_us", "other_us", "message"),
    [(0.0, 5.0, "recorded no GPU kernel"), (1.0, 1e308, "more GPU time than there can be")],
)
def test_a_trace_without_work_or_end_tells_nothing(
    tmp_path: Path, own_us: float, other_us: float, message: str
) -> None:
    exchanges = [launch(name="ncclDevKernel_AllReduce(Args)", dur=other_us)] * 2
    path = write_trace(tmp_path / "t.json.gz", host(), launch(dur=own_us), *exchanges)
    with pytest.raises(NotReadyError, match=message):
        read_trace(path, origin(), expected(), 8)


def test_flashmlas_own_kernels_are_told_with_the_schedule_that_they_need(tmp_path: Path) -> None:
    events = [launch(name=name, dur=dur) for name, dur in FLASHMLA]
    found = read_other(write_trace(tmp_path / "t.json.gz", host(), *events), origin(variant="flashmla"), "flashmla", 8)
    assert [seen["us_per_step"] for seen in found["launches"]] == [169.0]
    assert [seen["kernel"] for seen in found["beside"]] == ["flash_fwd_mla_combine_kernel", "get_mla_metadata_kernel"]
    assert (found["us_per_step"], found["gpu_us_per_step"]) == (287.0, 297.0)


def test_attention_that_is_not_known_by_name_is_told_and_refuses_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.gz", host(), launch())
    with pytest.raises(NotReadyError, match="flashmla does not run in decode"):
        read_other(path, origin(variant="flashmla"), "flashmla", 8)
    with pytest.raises(NotReadyError, match="flashinfer changes no kernel of SGLang's file"):
        read_other(path, origin(variant="flashinfer"), "flashinfer", 8)


def test_registers_as_compiled_here_are_no_fault_and_are_told(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.gz", host(), launch(registers=240))
    assert not read_trace(path, origin(), expected(entries=(ENTRY,)), 8)["registers_as_predicted"]


@pytest.mark.parametrize(
    ("predicted", "cached", "launched", "config"),
    [
        ((255, 240), (255, 240), 240, "(32,8,2) one cache"),
        ((255, 240), (255, 240), 255, "(32,8,2) two caches"),
        ((255, 200), (255,), 255, "(32,8,2) two caches or one cache"),
        ((255, 240), (255, 240, 230), 230, "(32,8,2) two caches or one cache"),
    ],
    ids=["as predicted", "as predicted, too", "compiled alike here", "compiled otherwise here"],
)
def test_a_launch_is_of_every_use_that_may_have_been_compiled_so_here(
    tmp_path: Path, predicted: tuple[int, int], cached: tuple[int, ...], launched: int, config: str
) -> None:
    uses = zip(("two caches", "one cache"), predicted, strict=True)
    built = tuple(replace(BUILT, use=use, registers=registers) for use, registers in uses)
    known = expected(
        report=replace(expected().report, resources=built),
        entries=tuple(replace(ENTRY, registers=registers) for registers in cached),
    )
    path = write_trace(tmp_path / "t.json.gz", host(), launch(registers=launched))
    (seen,) = read_trace(path, origin(), known, 8)["launches"]
    assert seen["config"] == config


def test_a_profiler_that_saw_no_gpu_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="no GPU kernel; CUPTI is missing"):
        read_trace(write_trace(tmp_path / "t.json.gz", host()), origin(), expected(), 8)


def test_a_torn_trace_tells_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", launch())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(NotReadyError, match="no whole JSON trace"):
        read_trace(path, origin(), expected(), 8)


def test_a_trace_too_large_to_travel_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (write_trace(tmp_path / f"{name}.json.gz", launch()) for name in ("small", "large"))
    assert keep(small, tmp_path / "start") == "trace.json.gz"
    monkeypatch.setattr(tracing, "KEPT_BYTES", 10)
    assert keep(large, tmp_path / "other") == ""
    assert [p.name for p in sorted(tmp_path.rglob("*.gz"))] == ["trace.json.gz"]


@pytest.mark.parametrize("release", ["0.5.17", "0.5.23"])
def test_the_request_and_the_traces_name_are_the_releases(release: str) -> None:
    with zipfile.ZipFile(fetch_wheel(pinned(release), default_cache())) as wheel:
        messages = ast.parse(wheel.read("sglang/srt/managers/io_struct.py"))
        manager = wheel.read("sglang/srt/managers/scheduler_components/profiler_manager.py").decode()
    (request,) = (n for n in messages.body if isinstance(n, ast.ClassDef) and n.name == "ProfileReq")
    fields = {n.target.id for n in request.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    assert set(profile_request("name", Path("folder"))) <= fields
    assert re.search(r'filename_parts = \[self\.profile_id, f"TP-\{[\w.()]+\}"\]', manager)
    assert '+ ".trace.json.gz"' in manager
    assert "def _profile(self, recv_req: ProfileReq)" in manager
