"""The release's own profiler manager, run on a CPU: what it does with the lab's request, and where its trace lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from app.engine.sglang.traced import Expected, Origin, read_trace
from app.engine.sglang.tracing import STEPS, profile_request
from app.errors import NotReadyError
from app.gate.report import GateReport
from kernels.geometry import Geometry
from tests.app.engine.sglang.of_release import load_of_release

FILE = "sglang/srt/managers/scheduler_components/profiler_manager.py"
FIELDS = ("start_step", "merge_profiles", "profile_by_stage", "profile_prefix", "profile_stages")
OFF = SimpleNamespace(get=lambda: False)
# What the module imports of SGLang, as far as it is used with such a request.
IMPORTED: dict[str, dict[str, Any]] = {
    "environ": {"envs": SimpleNamespace(SGLANG_PROFILE_V2=OFF)},
    "managers.io_struct": {
        "ProfileReq": object,
        "ProfileReqOutput": SimpleNamespace,
        "ProfileReqType": SimpleNamespace(START_PROFILE="start"),
    },
    "model_executor.forward_batch_info": {"ForwardMode": object},
    "platforms": {"current_platform": SimpleNamespace(is_out_of_tree=lambda: False)},
    "runtime_context": {"get_device": lambda: None},
    "utils": {"is_mps": lambda: False, "is_npu": lambda: False},
    "utils.profile_merger": {"ProfileMerger": object},
    "utils.profile_utils": {"ProfileManager": object},
    "utils.torch_npu_patch_utils": {"apply_torch_npu_patches": lambda *_: None},
}


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[], None]]:
    """The manager, and a forward pass that ends with its look at the counter."""
    monkeypatch.setattr(torch.distributed, "barrier", lambda _: None)
    module = load_of_release(FILE, IMPORTED, tmp_path, monkeypatch)
    passed = [7]
    ranks = SimpleNamespace(tp_rank=0, dp_size=1, pp_size=1, moe_ep_size=1)
    made_manager = module.SchedulerProfilerManager(ps=ranks, dp_tp_cpu_group=None, get_forward_ct=lambda: passed[0])

    def forward() -> None:
        passed[0] += 1
        made_manager._profile_batch_predicate(SimpleNamespace(forward_mode="decode"))
        torch.ones(3).sum()

    return made_manager, forward


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_server_without_cupti_profiles_its_steps_ends_by_itself_and_tells_nothing(
    manager: tuple[Any, Callable[[], None]], tmp_path: Path
) -> None:
    profiler, forward = manager
    asked = SimpleNamespace(req_type="start", **dict.fromkeys(FIELDS), **profile_request("decode-ab-1", tmp_path))
    assert profiler._profile(asked).success
    for _ in range(STEPS):
        forward()
    path = tmp_path / "decode-ab-1-TP-0.trace.json.gz"
    assert not path.exists()
    forward()
    report = GateReport("fast", "", "_sparse_mla_decode_kernel", 90, "3.6.0", Geometry(16, 1), "", ())
    with pytest.raises(NotReadyError, match="no GPU kernel; CUPTI is missing"):
        read_trace(path, Origin("fast", 90, [os.getpid()], 0.0), Expected(report, 16, ()), 8)


def test_stopping_what_has_ended_is_refused_and_harms_nothing(manager: tuple[Any, Callable[[], None]]) -> None:
    assert not manager[0]._profile(SimpleNamespace(req_type="stop")).success
