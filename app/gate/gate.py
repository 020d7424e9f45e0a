"""The gate: what is found out about a variant by compiling it, before anything of it is built."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.errors import NotReadyError, PatchError, UsageError
from app.gate.report import Finding, GateReport
from app.kernel.patch import PatchedKernel, patch_kernel, read_configs, read_key
from app.kernel.upstream import Base, fetch_base, pinned
from app.kernel.variants import Change, KernelConfig, Target, Variant, load_variants
from app.terminal import show
from kernels.extract import ExtractError
from kernels.geometry import (
    DEEPSEEK_V4_FLASH,
    DEFAULT_TP,
    Geometry,
    GeometryError,
    default_geometry,
    geometry_of,
    read_geometry,
)
from kernels.limits import LIMITS
from kernels.resources import Resources, compile_all
from kernels.signature import FOLDER, Signature, SignatureError, load_signature
from kernels.toolchain import Toolchain, ToolchainError, toolchain_of
from kernels.tuned import TableError, read_choices

__all__ = ["GateReport", "check", "check_named", "run_check"]

DEFAULT_ARCH = 120


def check_named(
    name: str,
    *,
    arch: int = DEFAULT_ARCH,
    triton: str | None = None,
    model: Path | None = None,
    tp: int = DEFAULT_TP,
    release: str | None = None,
    stock: bool = False,
) -> GateReport:
    """The gate on a variant of the repository.

    triton: version to compile with. model: a config.json or its folder. stock: try the configurations on SGLang's own
    kernel instead of the variant's file.
    """
    registry = load_variants()
    variant = registry.get(name)
    control = registry.get(variant.control) if variant.control else None
    if stock:
        variant, control = on_stock(variant), on_stock(control) if control else None
    try:
        geometry = read_geometry(model, tp) if model else geometry_of(DEEPSEEK_V4_FLASH, tp)
        chain = toolchain_of(triton)
    except GeometryError as error:
        raise UsageError(str(error)) from error
    except ToolchainError as error:
        raise NotReadyError(str(error)) from error
    base = fetch_base(release, module=variant.target.module if variant.target else None)
    return check(variant, control, base, arch, geometry, chain)


def on_stock(variant: Variant) -> Variant:
    """The variant's configurations and key on the kernel of SGLang's pinned release."""
    if variant.target is None:
        return variant
    change = Change(configs=variant.change.configs, key=variant.change.key)
    return replace(variant, target=Target(variant.target.module, pinned().kernel), change=change)


def run_check(name: str, *, allow_noop: bool = False, as_json: bool = False, **options: Any) -> int:
    """Print the gate's report on a variant, options as for check_named; GateError when it may not be built."""
    report = check_named(name, **options)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        show(*report.tables(allow_noop))
    report.require(allow_noop)
    return 0


def check(
    variant: Variant,
    control: Variant | None,
    base: Base,
    arch: int = DEFAULT_ARCH,
    geometry: Geometry | None = None,
    toolchain: Toolchain | None = None,
    signatures: Path = FOLDER,
) -> GateReport:
    """Patch, compile for `arch`, and hold one variant against its control (None: it is measured, not judged).

    Whatever is wrong with the variant is a finding. UsageError: the signature file does not fit the kernel, or the arch
    is unknown; NotReadyError: there is no Triton.
    """
    if arch not in LIMITS:
        raise UsageError.unknown("arch", str(arch), [str(known) for known in LIMITS])
    try:
        chain = toolchain or toolchain_of()
    except ToolchainError as error:
        raise NotReadyError(str(error)) from error
    job = _Job(arch, geometry or default_geometry(), chain, signatures)
    built, against = _build(variant, base, job), _build(control, base, job) if control else _Build()
    findings = list(_own_findings(built))
    if control and against.fault:
        findings.append(Finding("refuse", f"its control {control.name} cannot be built: {against.fault}"))
    elif control and _same(built, against):
        what = f"same machine code as its control {control.name}: an A/B test would compare a kernel with itself"
        findings.append(Finding("no-op", f"{what} (sm_{arch}, Triton {chain.version})"))
    return GateReport(
        variant=variant.name,
        control=control.name if control else "",
        kernel=variant.target.kernel if variant.target else "",
        arch=arch,
        triton_version=chain.version,
        geometry=job.geometry,
        kernel_sha256=built.patched.sha256 if built.patched else "",
        findings=tuple(findings),
        resources=built.resources,
        control_resources=against.resources,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """For what and with what everything of one check is compiled."""

    arch: int
    geometry: Geometry
    toolchain: Toolchain
    signatures: Path


@dataclass(frozen=True, slots=True)
class _Build:
    """A variant patched and compiled; fault says why it cannot be launched.

    listed: from the autotune list, empty where it can never be used; chosen: from a table of choices made offline.
    """

    patched: PatchedKernel | None = None
    kernel: str = ""
    listed: tuple[Resources, ...] = ()
    chosen: tuple[Resources, ...] = ()
    fault: str = ""

    @property
    def resources(self) -> tuple[Resources, ...]:
        """All that was compiled."""
        return self.listed + self.chosen

    def survivors(self) -> dict[str, list[Resources]]:
        """What the autotuner can choose from, for each way of launching."""
        uses: dict[str, list[Resources]] = {resources.use: [] for resources in self.listed}
        for resources in self.listed:
            uses[resources.use] += [resources] if resources.fits else []
        return uses


def _build(variant: Variant, base: Base, job: _Job) -> _Build:
    if variant.target is None:
        return _Build()
    kernel = variant.target.kernel
    try:
        patched = patch_kernel(base, variant)
        signature = load_signature(kernel, job.signatures)
        listed = read_configs(patched.text, kernel)
        chosen, covered = _choices(patched.text, signature, job)
        configs = [*([] if covered else listed), *chosen]
        found = compile_all(patched.text, kernel, signature, configs, job.arch, job.geometry, job.toolchain)
    except (PatchError, ExtractError, TableError) as error:
        return _Build(fault=f"does not patch: {error}")
    except SignatureError as error:
        raise UsageError(str(error)) from error
    # Every configuration has one result for each use.
    first = len(found) - len(chosen) * len(signature.uses)
    build = _Build(patched, kernel, tuple(found[:first]), tuple(found[first:]))
    return replace(build, fault=_chosen_fault(build.chosen) or _launch_fault(build.listed))


def _choices(text: str, signature: Signature, job: _Job) -> tuple[list[KernelConfig], bool]:
    if signature.table is None:
        return [], False
    choices, covered = read_choices(text, signature.table, job.arch, job.geometry)
    return [KernelConfig(c.constants, c.num_warps, c.num_stages) for c in choices], covered


def _chosen_fault(chosen: Sequence[Resources]) -> str:
    # A choice of the table is launched as it is: nothing is dropped, nothing else is tried.
    for resources in chosen:
        if not resources.fits:
            return f"{_named(resources)}, a choice of its table, cannot run: {resources.error or _excess(resources)}"
    return ""


def _launch_fault(found: Sequence[Resources]) -> str:
    for resources in found:
        if resources.error is not None and not resources.dropped:
            return f"does not compile: {_named(resources)}: {resources.error}"
    for use in dict.fromkeys(resources.use for resources in found):
        mine = [resources for resources in found if resources.use == use]
        if not any(resources.fits for resources in mine):
            limits = mine[0].limits
            least = min((r.shared_bytes for r in mine if r.error is None), default=None)
            need = "none compiles" if least is None else f"the smallest needs {least} B of shared memory"
            return f"no config survives on {limits.name}: {need}, one CTA may have {limits.cta_shared_bytes} B"
    return ""


def _own_findings(built: _Build) -> Iterator[Finding]:
    if built.fault:
        yield Finding("refuse", built.fault)
    for resources in built.listed:
        if resources.dropped or (resources.error is None and not resources.fits):
            why = resources.error or _excess(resources)
            yield Finding("pruned", f"{_named(resources)} {why}; silently dropped at run time", str(resources.config))
    for use, found in built.survivors().items():
        if len(found) > 1:
            listed = " ".join(str(resources.config) for resources in found)
            what = f"{len(found)} configs survive{f' in {use}' if use else ''}: {listed}; each start draws one of them"
            yield Finding("draw", f"{what}, so image, proof and verdict are stamped 'autotune drawn'")
    for resources in built.resources:
        if resources.fits and resources.spill_bytes:
            what = f"{_named(resources)} spills {resources.spill_bytes} B a thread to local memory"
            yield Finding("spill", what, str(resources.config))


def _named(resources: Resources) -> str:
    return f"{resources.config} in {resources.use}" if resources.use else str(resources.config)


def _excess(resources: Resources) -> str:
    limits = resources.limits
    if resources.shared_bytes > limits.cta_shared_bytes:
        return (
            f"needs {resources.shared_bytes} B of shared memory, over the {limits.cta_shared_bytes} B of {limits.name}"
        )
    return f"needs {resources.num_warps} warps of {resources.registers} registers, more than an SM of {limits.name} has"


def _same(one: _Build, other: _Build) -> bool:
    """Whether both launch the same code in the same way and the file around the kernel is the same."""
    if one.patched is None or other.patched is None:
        return False
    codes, others = ({u: {r.identity for r in found} for u, found in b.survivors().items()} for b in (one, other))
    if codes != others or one.fault:
        return False
    # With one code to choose from, the autotune key chooses nothing.
    drawn = any(len(found) > 1 for found in codes.values())
    if drawn and read_key(one.patched.text, one.kernel) != read_key(other.patched.text, other.kernel):
        return False
    return _around(one.patched.text, one.kernel) == _around(other.patched.text, other.kernel)


def _around(text: str, kernel: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            node.decorator_list = [d for d in node.decorator_list if "autotune" not in ast.unparse(d).partition("(")[0]]
    return ast.dump(tree)
