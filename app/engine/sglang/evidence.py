"""Proof of a local SGLang: what its process imported, what Triton compiled for it, and what the gate predicted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.engine.proof import Proof
from app.engine.sglang.running import Running
from app.engine.sglang.witness import Testimony, attending, read_testimonies
from app.errors import ProofError
from app.gate.report import GateReport
from app.gate.triton_cache import CacheEntry, read_entries
from app.kernel.placed import PlacedKernel
from app.kernel.variants import load_variants
from kernels.geometry import Geometry
from kernels.resources import Resources, compile_all
from kernels.signature import load_signature

_CHOSEN = re.compile(r"Triton autotuning for function (\w+),.*?best config selected: ([^;]*);", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cache entries held against the gate. faults: entries of no predicted configuration; exact: equal code in all."""

    faults: tuple[str, ...]
    exact: bool


def prove(running: Running, service: int, log: Path, conditions: Mapping[str, str]) -> Proof:
    """The proof of the service that was started last; ProofError names what differs."""
    kernel, arch = running.kernel, running.arch
    running.package.check()
    seen = attending(read_testimonies(running.evidence, service))
    check_imported(seen, running)
    entries = read_entries(running.triton_cache, kernel.kernel, running.since) if kernel.kernel else ()
    beside = [e for name in companions(kernel) for e in read_entries(running.triton_cache, name, running.since)]
    heads = seen.heads or running.rank_heads
    report = predict(kernel, arch, heads)
    predicted = report.resources if report else ()
    agreement = agree(entries, predicted, lambda: predict_further(kernel, arch, heads))
    if agreement.faults:
        raise ProofError(f"{kernel.variant}: {'; '.join(agreement.faults)}")
    return Proof(
        variant=kernel.variant,
        selector=kernel.selector,
        kernel_sha256=seen.kernel_sha256,
        config=ran(chosen(log, kernel, predicted), drawn_from(report), predicted) or kernel.selector,
        candidates=drawn_from(report),
        simulated=False,
        conditions=dict(conditions),
        evidence={
            "kernel_file": str(seen.kernel_file.relative_to(running.package.folder)),
            "pid": seen.pid,
            "path": seen.path,
            "calls": [dict(c) for c in seen.calls],
            "cache": [e.to_json() for e in entries],
            "prebuilt": running.ahead.to_json() if running.ahead else None,
            "compiled_after_start": sum(e.new for e in (*entries, *beside)),
            "code_as_predicted": agreement.exact,
        },
    )


def predict(kernel: PlacedKernel, arch: int, heads: int) -> GateReport | None:
    """What the gate finds of the variant for this GPU and this many query heads; None for no kernel of the file."""
    from app.gate.gate import check
    from app.kernel.upstream import fetch_base

    variant = load_variants().get(kernel.variant)
    if variant.target is None:
        return None
    report = check(variant, None, fetch_base(module=variant.target.module), arch, Geometry(heads, 1))
    if report.kernel_sha256 != kernel.sha256:
        raise ProofError(f"{kernel.variant}: its file has changed since it was put in place; begin a new campaign")
    return report


def predict_further(kernel: PlacedKernel, arch: int, heads: int) -> Sequence[Resources]:
    """What becomes of the launches that the gate leaves out, since they need what the others need."""
    from app.kernel.launched import read_launched

    text, geometry = kernel.path.read_text(encoding="utf-8"), Geometry(heads, 1)
    launched = read_launched(text, str(kernel.kernel), arch, geometry)
    if not (further := launched.signature.further):
        return ()
    signature = replace(further[0], others=further[1:])
    return compile_all(text, signature.kernel, signature, launched.listed + launched.chosen, arch, geometry)


def companions(kernel: PlacedKernel) -> tuple[str, ...]:
    """The kernels that the file's host code may launch beside its own."""
    return tuple(load_signature(kernel.kernel).companions) if kernel.kernel else ()


def drawn_from(report: GateReport | None) -> tuple[str, ...]:
    """The configurations among which a start draws, or the one it has; a table chooses by batch and draws nothing."""
    if report is None:
        return ()
    listed = tuple(dict.fromkeys(str(r.config) for r in report.resources if r.fits))
    return listed if report.autotune_drawn or len(listed) == 1 else ()


def agree(
    entries: Sequence[CacheEntry],
    predicted: Sequence[Resources],
    further: Callable[[], Sequence[Resources]] = tuple,
) -> Agreement:
    """Entries that are of no predicted configuration are faults, and so is a kernel that was never compiled.

    Warps, stages and shared memory follow from the configuration; registers and code depend on how SGLang specialises
    the launch as well, so their agreement is stated and not required. further: asked for more predictions where a code
    is none of the gate's.
    """
    if not predicted:
        return Agreement((), True)
    if not entries:
        return Agreement(("Triton's cache holds no compile of its kernel; it was never launched",), False)
    launchable = {(r.num_warps, r.config.num_stages, r.shared_bytes) for r in predicted if r.error is None}
    unknown = {(e.code_sha256, e.registers) for e in entries} - {(r.code_sha256, r.registers) for r in predicted}
    known = {(r.code_sha256, r.registers) for r in further()} if unknown and (None, None) not in unknown else set()
    faults = [
        f"cache entry {e.key[:12]} has warps/stages/shared {e.num_warps}/{e.num_stages}/{e.shared}, the gate predicts "
        + ", ".join("/".join(map(str, known)) for known in sorted(launchable))
        for e in entries
        if (e.num_warps, e.num_stages, e.shared) not in launchable
    ]
    return Agreement(tuple(faults), unknown <= known)


def chosen(log: Path, kernel: PlacedKernel, predicted: Sequence[Resources]) -> tuple[str, ...]:
    """The configurations that the autotuner said it picked, each once."""
    known = {_printed(r): str(r.config) for r in predicted if r.fits}
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    told = [found for function, found in _CHOSEN.findall(text) if function == kernel.kernel]
    return tuple(dict.fromkeys(known[short] for short in map(_shortened, told) if short in known))


def ran(told: Sequence[str], drawn: Sequence[str], predicted: Sequence[Resources]) -> str:
    """What runs, in words: what the autotuner told, the only configuration, all of a table, or a draw not known."""
    if told:
        return " ".join(told)
    if len(drawn) > 1:
        return f"not told, one of {' '.join(drawn)}"
    return " ".join(dict.fromkeys(str(r.config) for r in predicted if r.fits))


def check_imported(seen: Testimony, running: Running) -> None:
    kernel, package = running.kernel, running.package
    faults = []
    if seen.kernel_file != package.kernel_file:
        faults.append(f"it imported {seen.kernel_file}, not {package.kernel_file}")
    if seen.kernel_sha256 != kernel.sha256:
        faults.append(f"the file it imported has SHA-256 {seen.kernel_sha256}, not {kernel.sha256}")
    if kernel.selector != "flashmla" and seen.selector != kernel.selector:
        faults.append(f"its selector is {seen.selector!r}, not {kernel.selector!r}")
    if seen.path != running.path:
        faults.append(f"its path is {seen.path!r}, not {running.path!r}")
    if kernel.selector == "flashmla" and seen.calls:
        faults.append(f"sm_120's attention was called {len(seen.calls)} times on the card's own path")
    faults += [
        f"it is launched for {call['launched']} of the {call['own']} heads of its rank"
        for call in seen.calls
        if call["launched"] < call["own"]
    ]
    if kernel.selector != "flashmla" and not seen.calls:
        faults.append("sm_120's attention was never called")
    if faults:
        raise ProofError(f"decode runs another kernel than {kernel.variant}: {'; '.join(faults)}")


def _printed(resources: Resources) -> str:
    config = resources.config
    constants = ", ".join(f"{name}: {value}" for name, value in config.constants.items())
    return f"{constants}, num_warps: {config.num_warps}, num_stages: {config.num_stages}"


def _shortened(told: str) -> str:
    kept = [part for part in told.split(", ") if not part.startswith(("num_ctas", "maxnreg"))]
    return ", ".join(kept)
