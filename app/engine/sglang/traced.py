"""What a trace of the decode service tells: launches held against the gate's, or those of SGLang's own attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.engine.sglang.tracing import STEPS
from app.errors import LabError, NotReadyError, ProofError
from app.gate.report import GateReport
from app.gate.triton_cache import CacheEntry
from kernels.resources import Resources

if TYPE_CHECKING:
    from app.gate.profile import Match
    from kernels.trace import Device, LaunchGroup, Setting

# Kernels of a selector whose attention is none of the file's, by their names without space and arguments; attention
# itself is the first. FlashMLA makes a schedule of its splits anew in each step, once for each kind of layer.
OF_SELECTOR: Mapping[str, tuple[str, ...]] = {
    "flashmla": (
        "flash_fwd_splitkv_mla_fp8_sparse_kernel",
        "flash_fwd_mla_combine_kernel",
        "get_mla_metadata_kernel",
    )
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trace has to come from. pids: the service's processes; since: Unix time of its start."""

    variant: str
    arch: int
    pids: Sequence[int]
    since: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What the gate predicts of the launches.

    heads: query heads that the kernel is launched for; entries: what Triton's cache holds of the kernel.
    """

    report: GateReport
    heads: int
    entries: Sequence[CacheEntry]


@dataclass(frozen=True, slots=True)
class _Traced:
    """groups: launches by kernel, attention itself first, then those beside it that ran."""

    setting: Setting
    device: Device | None
    groups: Mapping[str, list[LaunchGroup]]


def read_trace(path: Path, origin: Origin, expected: Expected, requests: int) -> dict[str, Any]:
    """The variant's launches for proof.json; NotReadyError: the trace tells nothing; ProofError: it tells otherwise."""
    from app.gate.profile import match_launches
    from kernels.signature import load_signature

    kernel = expected.report.kernel
    signature = load_signature(kernel)
    traced = _read(path, origin, (kernel, *signature.companions), ProofError)
    known = (*expected.report.resources, *_as_compiled(expected, predicted_too=False))
    spare = _as_compiled(expected, predicted_too=True)
    matches = match_launches(traced.groups[kernel], known, signature, expected.heads, spare)
    if faults := [m.fault for m in matches if m.fault]:
        raise ProofError(f"{origin.variant}: its launches are not what the gate predicts: {'; '.join(faults)}")
    registers = {r.registers for r in expected.report.resources if r.error is None}
    return {
        **_facts(matches, traced, requests),
        "registers_as_predicted": all(m.group.launch.registers in registers for m in matches),
    }


def read_other(path: Path, origin: Origin, selector: str, requests: int) -> dict[str, Any]:
    """The launches of attention that is none of the file's; NotReadyError, ProofError as `read_trace`.

    Nothing was predicted of them, so that none is found refuses nothing.
    """
    from app.gate.profile import Match

    if selector not in OF_SELECTOR:
        raise NotReadyError(
            f"{origin.variant} changes no kernel of SGLang's file, so the gate predicts no launches that its trace "
            f"could be held against, and what {selector} launches is not known here"
        )
    traced = _read(path, origin, OF_SELECTOR[selector], NotReadyError)
    own = next(iter(traced.groups))
    return _facts([Match(group, config=own) for group in traced.groups[own]], traced, requests)


def _read(path: Path, origin: Origin, kernels: Sequence[str], absent: type[LabError]) -> _Traced:
    from kernels.trace import AbsentError, TraceError, read_device, read_launches, read_setting

    groups = {}
    try:
        setting, device = read_setting(path), read_device(path)
        _check_own(path, setting, device, origin)
        if not setting.working_us:
            raise NotReadyError("the profiler recorded no GPU kernel; CUPTI is missing or in use by another profiler")
        if not isfinite(setting.working_us + setting.exchange_us):
            raise NotReadyError(f"{path.name} tells of more GPU time than there can be; record it again")
        for name in kernels:
            try:
                groups[name] = read_launches(path, name)
            except AbsentError as e:
                if name == kernels[0]:
                    raise absent(f"{origin.variant} does not run in decode: {e}") from e
    except TraceError as e:
        raise NotReadyError(str(e)) from e
    return _Traced(setting, device, groups)


def _check_own(path: Path, setting: Setting, device: Device | None, origin: Origin) -> None:
    faults = []
    if path.stat().st_mtime < origin.since:
        faults.append("it is older than the service's start")
    if foreign := sorted(setting.processes - set(origin.pids)):
        faults.append(f"it was recorded in process {foreign[0]}, which is none of the service's")
    if device is not None and device.arch != origin.arch:
        faults.append(f"it was recorded on {device.name}, sm_{device.arch}, not on sm_{origin.arch}")
    if faults:
        raise ProofError(f"{path.name} is no trace of this start: {'; '.join(faults)}")


def _as_compiled(expected: Expected, predicted_too: bool) -> list[Resources]:
    """The gate's configurations with the registers that Triton's cache shows here.

    Registers follow from how SGLang specialises a launch as well, which the gate cannot know. predicted_too: those
    whose predicted registers the cache shows too, so that others' launches are theirs only where nothing else fits.
    """
    return [
        replace(r, registers=registers)
        for r in expected.report.resources
        if r.error is None and predicted_too == (r.registers in (found := _cached_registers(r, expected.entries)))
        for registers in sorted(found - {r.registers})
    ]


def _cached_registers(r: Resources, entries: Sequence[CacheEntry]) -> set[int]:
    shape = (r.num_warps, r.config.num_stages, r.shared_bytes)
    return {e.registers for e in entries if e.registers is not None and (e.num_warps, e.num_stages, e.shared) == shape}


def _facts(matches: Sequence[Match], traced: _Traced, requests: int) -> dict[str, Any]:
    setting, device = traced.setting, traced.device
    steps = setting.graphs or STEPS
    own_us = sum(g.total_us for groups in traced.groups.values() for g in groups)
    return {
        "device": asdict(device) if device else None,
        "requests": requests,
        "steps": steps,
        "graphs": setting.graphs,
        "launches": [{"config": m.config, **_launched(m.group, steps)} for m in matches],
        "beside": [
            {"kernel": name, **_launched(group, steps)}
            for name, groups in list(traced.groups.items())[1:]
            for group in groups
        ],
        "us_per_step": round(own_us / steps, 3),
        "gpu_us_per_step": round(setting.working_us / steps, 3),
        "exchange_us_per_step": round(setting.exchange_us / steps, 3),
        "share_of_gpu_time": round(own_us / setting.working_us, 4),
    }


def _launched(group: LaunchGroup, steps: int) -> Mapping[str, Any]:
    return {
        **asdict(group.launch),
        "count": group.count,
        "per_step": round(group.count / steps, 3),
        "mean_us": round(group.mean_us, 3),
        "us_per_step": round(group.total_us / steps, 3),
    }
