"""A profiler's trace of the decode service, taken by SGLang itself over a few steps and held against the gate."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.answer import post
from app.engine import Endpoints
from app.engine.sglang.asking import without_graphs
from app.engine.sglang.kept_busy import kept_busy
from app.errors import NotReadyError, ProofError
from app.gate.report import GateReport
from app.gate.triton_cache import CacheEntry
from kernels.resources import Resources

if TYPE_CHECKING:
    from app.gate.profile import Match
    from kernels.trace import Device, LaunchGroup, Setting

STEPS = 10
WAIT_S = 45.0
LOOK_S = 0.1
# Packed. Ten decode steps take some 100 KB; a larger trace is of something else, a kept one travels with its campaign.
LIMIT_BYTES = 16 * 1024 * 1024
KEPT_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """What a trace has to be of. pids: the service's processes; since: Unix time of its start.

    heads: query heads that the kernel is launched for; entries: what Triton's cache holds of the kernel.
    """

    report: GateReport
    heads: int
    pids: Sequence[int]
    since: float
    entries: Sequence[CacheEntry]


@dataclass(frozen=True, slots=True)
class _Traced:
    """groups: launches by kernel, the variant's own and those of its companions that ran."""

    setting: Setting
    device: Device | None
    groups: Mapping[str, list[LaunchGroup]]


def profile_request(name: str, folder: Path) -> dict[str, Any]:
    """Body of /start_profile: SGLang begins at once, ends by itself, and writes FOLDER/NAME-TP-0.trace.json.gz.

    More ranks than those of TP add theirs to the name.

    Without CPU beside GPU torch's profiler would end the scheduler where CUPTI is missing.
    """
    return {
        "output_dir": str(folder),
        "profile_id": name,
        "num_steps": STEPS,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }


def take_trace(endpoints: Endpoints, prompts: Sequence[str], tokens: int, folder: Path) -> Path:
    """The trace of some decode steps with all prompts running; NotReadyError says why there is none."""
    name = f"decode-ab-{uuid.uuid4().hex[:12]}"
    with without_graphs(endpoints, folder), kept_busy(endpoints, prompts, tokens):
        answer = post(f"{endpoints.decode_url}/start_profile", profile_request(name, folder), WAIT_S)
        if answer.status != 200:
            raise NotReadyError(f"{answer.url} answered HTTP {answer.status}; the server's log says why")
        deadline = time.monotonic() + WAIT_S
        while not _written(folder, name) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        path = _written(folder, name)
        # The scheduler writes the file in one go and answers after it, whether there was anything left to stop or not.
        post(f"{endpoints.decode_url}/stop_profile", {}, WAIT_S)
    if path is None:
        # One that the stop wrote is of fewer steps than it would be read as.
        for cut in folder.glob(f"{name}*.trace.json.gz"):
            cut.unlink()
        raise NotReadyError(
            f"{STEPS} decode steps were not traced within {WAIT_S:.0f} s; the server's log says whether it decoded"
        )
    if (size := path.stat().st_size) > LIMIT_BYTES:
        path.unlink()
        raise NotReadyError(f"the profiler's trace takes {size} bytes, {LIMIT_BYTES} are read at most")
    return path


def read_trace(path: Path, expected: Expected, requests: int) -> dict[str, Any]:
    """The variant's launches for proof.json; NotReadyError: the trace tells nothing; ProofError: it tells otherwise."""
    from app.gate.profile import match_launches
    from kernels.signature import load_signature
    from kernels.trace import TraceError

    kernel = expected.report.kernel
    signature = load_signature(kernel)
    try:
        traced = _read(path, expected, tuple(signature.companions))
    except TraceError as e:
        raise NotReadyError(str(e)) from e
    known = (*expected.report.resources, *_as_compiled(expected))
    matches = match_launches(traced.groups[kernel], known, signature, expected.heads)
    if faults := [m.fault for m in matches if m.fault]:
        raise ProofError(f"{expected.report.variant}: its launches are not what the gate predicts: {'; '.join(faults)}")
    return _facts(matches, traced, expected, requests)


def keep(path: Path, folder: Path) -> str:
    """Moves a trace into the start's folder unless it is too large to travel; its name there, or nothing."""
    if path.stat().st_size > KEPT_BYTES:
        path.unlink()
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    return path.replace(folder / "trace.json.gz").name


def _read(path: Path, expected: Expected, companions: Sequence[str]) -> _Traced:
    from kernels.trace import AbsentError, read_device, read_launches, read_setting

    kernel = expected.report.kernel
    setting, device = read_setting(path), read_device(path)
    _check_own(path, setting, device, expected)
    if not setting.gpu_us:
        raise NotReadyError("the profiler recorded no GPU kernel; CUPTI is missing or in use by another profiler")
    groups = {}
    for name in (kernel, *companions):
        try:
            groups[name] = read_launches(path, name)
        except AbsentError as e:
            if name == kernel:
                raise ProofError(f"{expected.report.variant} does not run in decode: {e}") from e
    return _Traced(setting, device, groups)


def _written(folder: Path, name: str) -> Path | None:
    return next(folder.glob(f"{name}-TP-0*.trace.json.gz"), None)


def _check_own(path: Path, setting: Setting, device: Device | None, expected: Expected) -> None:
    faults = []
    if path.stat().st_mtime < expected.since:
        faults.append("it is older than the service's start")
    if foreign := sorted(setting.processes - set(expected.pids)):
        faults.append(f"it was recorded in process {foreign[0]}, which is none of the service's")
    if device is not None and device.arch != expected.report.arch:
        faults.append(f"it was recorded on {device.name}, sm_{device.arch}, not on sm_{expected.report.arch}")
    if faults:
        raise ProofError(f"{path.name} is no trace of this start: {'; '.join(faults)}")


def _as_compiled(expected: Expected) -> list[Resources]:
    """The gate's configurations with the registers that Triton's cache shows here.

    Registers follow from how SGLang specialises a launch as well, which the gate cannot know.
    """
    return [
        replace(r, registers=e.registers)
        for r in expected.report.resources
        for e in expected.entries
        if r.error is None
        and e.registers not in (None, r.registers)
        and (e.num_warps, e.num_stages, e.shared) == (r.num_warps, r.config.num_stages, r.shared_bytes)
    ]


def _facts(matches: Sequence[Match], traced: _Traced, expected: Expected, requests: int) -> dict[str, Any]:
    setting, device = traced.setting, traced.device
    steps = setting.graphs or STEPS
    own_us = sum(g.total_us for groups in traced.groups.values() for g in groups)
    registers = {r.registers for r in expected.report.resources if r.error is None}
    beside = {name: groups for name, groups in traced.groups.items() if name != expected.report.kernel}
    return {
        "device": asdict(device) if device else None,
        "requests": requests,
        "steps": steps,
        "graphs": setting.graphs,
        "launches": [{"config": m.config, **_launched(m.group, steps)} for m in matches],
        "beside": [{"kernel": name, **_launched(g, steps)} for name, groups in beside.items() for g in groups],
        "us_per_step": round(own_us / steps, 3),
        "gpu_us_per_step": round(setting.gpu_us / steps, 3),
        "share_of_gpu_time": round(own_us / setting.gpu_us, 4),
        "registers_as_predicted": all(m.group.launch.registers in registers for m in matches),
    }


def _launched(group: LaunchGroup, steps: int) -> Mapping[str, Any]:
    return {
        **asdict(group.launch),
        "count": group.count,
        "per_step": round(group.count / steps, 3),
        "mean_us": round(group.mean_us, 3),
        "us_per_step": round(group.total_us / steps, 3),
    }
