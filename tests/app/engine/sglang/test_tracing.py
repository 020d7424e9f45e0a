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
from app.engine.sglang.tracing import Expected, keep, profile_request, read_trace
from app.errors import NotReadyError, ProofError
from app.gate.report import GateReport
from app.gate.triton_cache import CacheEntry
from app.kernel.upstream import default_cache, fetch_wheel, pinned
from app.kernel.variants import KernelConfig
from kernels.geometry import Geometry
from kernels.resources import Resources
from tests.kernels.made_trace import STOCK, launch, write_trace

OWN, MERGE = "_sparse_mla_decode_kernel", "_merge_kernel"
CONFIG = KernelConfig({"BLOCK_T": 32}, 8, 2)
BUILT = Resources(CONFIG, 90, "3.6.0", shared_bytes=16384, registers=255, num_warps=8)
ENTRY = CacheEntry("KEY", 8, 2, 16384, "ab", 90, 240, "cd", True)


def expected(**changes: Any) -> Expected:
    report = GateReport("upstream", "", STOCK, 90, "3.6.0", Geometry(16, 1), "", (), (BUILT,))
    return replace(Expected(report, 16, [os.getpid()], 0.0, ()), **changes)


def host(pid: int = os.getpid(), name: str = "cudaGraphLaunch") -> dict[str, Any]:
    return {"cat": "cuda_runtime", "name": name, "pid": pid, "dur": 1}


def test_launches_are_told_a_decode_step(tmp_path: Path) -> None:
    events = [*[host()] * 2, *[launch(dur=30.0)] * 6, launch(name="gemm", dur=60.0)]
    found = read_trace(write_trace(tmp_path / "t.json.gz", *events), expected(), 8)
    (seen,) = found["launches"]
    assert (seen["config"], seen["count"], seen["per_step"], seen["us_per_step"]) == ("(32,8,2)", 6, 3.0, 90.0)
    assert (seen["grid"], seen["block"], seen["shared_bytes"]) == ((8, 16, 1), (256, 1, 1), 16384)
    assert (found["steps"], found["gpu_us_per_step"], found["share_of_gpu_time"]) == (2, 120.0, 0.75)


def test_kernels_launched_beside_the_variants_count_with_it(tmp_path: Path) -> None:
    report = replace(expected().report, kernel=OWN, resources=(replace(BUILT, kernel=OWN),))
    events = [launch(name, dur=30.0, grid=(8, 1, 1)) for name in (OWN, MERGE, "gemm")]
    found = read_trace(write_trace(tmp_path / "t.json.gz", host(), *events), expected(report=report), 8)
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
        read_trace(write_trace(tmp_path / "t.json.gz", host(), event), expected(**changes), 8)


def test_another_gpus_trace_is_no_proof(tmp_path: Path) -> None:
    card = {"name": "RTX", "computeMajor": 12, "computeMinor": 0}
    with pytest.raises(ProofError, match="recorded on RTX, sm_120, not on sm_90"):
        read_trace(write_trace(tmp_path / "t.json.gz", launch(), device=card), expected(), 8)


def test_registers_as_compiled_here_are_no_fault_and_are_told(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json.gz", host(), launch(registers=240))
    assert not read_trace(path, expected(entries=(ENTRY,)), 8)["registers_as_predicted"]


def test_a_profiler_that_saw_no_gpu_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="no GPU kernel; CUPTI is missing"):
        read_trace(write_trace(tmp_path / "t.json.gz", host()), expected(), 8)


def test_a_torn_trace_tells_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", launch())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(NotReadyError, match="no whole JSON trace"):
        read_trace(path, expected(), 8)


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
