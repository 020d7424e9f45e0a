"""The gate: what is found out about a variant by compiling it, before anything of it is built."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.errors import NotReadyError, PatchError, UsageError
from app.gate.report import Finding, GateReport
from app.gate.shortfall import excess, launch_fault, named
from app.kernel.launched import read_launched
from app.kernel.patch import PatchedKernel, patch_kernel, read_key
from app.kernel.upstream import Base
from app.kernel.variant import Variant
from kernels.extract import ExtractError, host_code, in_order
from kernels.geometry import (
    Geometry,
    default_geometry,
)
from kernels.limits import LIMITS
from kernels.resources import Compilation, Resources, compile_prepared, prepare
from kernels.signature import FOLDER, Config, Signature, SignatureError
from kernels.toolchain import Toolchain, ToolchainError, toolchain_of
from kernels.tuned import TableError

DEFAULT_ARCH = 120


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
    is unknown; NotReadyError: there is no Triton, or no room to keep what it says.
    """
    if arch not in LIMITS:
        raise UsageError.unknown("arch", str(arch), [str(known) for known in LIMITS])
    try:
        job = _Job(arch, geometry or default_geometry(), toolchain or toolchain_of(), signatures)
        built, against = _side_by_side([_build(each, base, job) for each in (variant, control)], job)
        findings = (*_own_findings(built), *(_control_findings(control.name, built, against, job) if control else ()))
    except ToolchainError as error:
        raise NotReadyError(str(error)) from error
    return GateReport(
        variant=variant.name,
        control=control.name if control else "",
        kernel=variant.target.kernel if variant.target else "",
        arch=arch,
        triton_version=job.toolchain.version,
        geometry=job.geometry,
        kernel_sha256=built.patched.sha256 if built.patched else "",
        findings=findings,
        resources=built.resources,
        control_resources=against.resources,
        companions=built.companions,
        control_companions=against.companions,
        control_sha256=against.patched.sha256 if against.patched else "",
        own_heads=built.own_heads,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """For what and with what everything of one check is compiled."""

    arch: int
    geometry: Geometry
    toolchain: Toolchain
    signatures: Path

    def prepare(self, text: str, signature: Signature, configs: Sequence[Config]) -> list[Compilation]:
        """Every configuration in every use of the signature's kernel."""
        return prepare(text, signature.kernel, signature, configs, self.arch, self.geometry)

    def compile(self, prepared: Sequence[Compilation]) -> list[Resources]:
        """One result for each, in the same order."""
        return compile_prepared(prepared, self.toolchain)


@dataclass(frozen=True, slots=True)
class _Build:
    """A variant patched and compiled; fault says why it cannot be launched.

    listed: from the autotune list, empty where it can never be used; chosen: from a table of choices made offline;
    rows: those of the table that choose a configuration; companions: the kernels that the host launches beside it under
    any configuration that fits; further: ways to launch it that are compiled only to tell codes apart.
    """

    patched: PatchedKernel | None = None
    kernel: str = ""
    listed: tuple[Resources, ...] = ()
    chosen: tuple[Resources, ...] = ()
    companions: tuple[Resources, ...] = ()
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    further: tuple[Signature, ...] = ()
    own_heads: bool = False
    fault: str = ""

    @property
    def resources(self) -> tuple[Resources, ...]:
        """All that was compiled of the kernel itself."""
        return self.listed + self.chosen

    def survivors(self) -> dict[str, list[Resources]]:
        """What the autotuner can choose from, for each way of launching."""
        uses: dict[str, list[Resources]] = {resources.use: [] for resources in self.listed}
        for resources in self.listed:
            uses[resources.use] += [resources] if resources.fits else []
        return uses

    def title(self, resources: Resources) -> str:
        """What one of its compiled launches is called in a finding."""
        if resources in self.companions:
            return f"{resources.kernel} {named(resources)}, which the host launches beside it,"
        if resources in self.chosen:
            rows = self.rows[str(resources.config)]
            which = f"row{'s' if len(rows) > 1 else ''} {' and '.join(rows)}"
            return f"{named(resources)}, the choice of {which} of its table,"
        return named(resources)

    def codes(self) -> tuple[object, ...]:
        """Equal for builds that launch the same machine code, names aside, in choices of a table in the same order."""
        drawn = {use: {r.identity for r in found} for use, found in self.survivors().items()}
        names = in_order(self.patched.text, {r.kernel for r in self.companions}) if self.patched else []
        beside = {(names.index(r.kernel), r.use, r.identity) for r in self.companions}
        return drawn, [(r.use, r.identity) for r in self.chosen], beside


# Yields what it waits for to be compiled, is sent list[Resources] in the same order, and returns the build.
_Steps = Generator[list[Compilation], Any, _Build]


def _side_by_side(steps: Sequence[_Steps], job: _Job) -> list[_Build]:
    # What all of them wait for is compiled together: one alone leaves a core unused while its slowest kernel compiles.
    built = dict[_Steps, _Build]()
    waiting: dict[_Steps, list[Resources] | None] = dict.fromkeys(steps)
    while waiting:
        wanted = dict[_Steps, list[Compilation]]()
        for step, found in waiting.items():
            try:
                wanted[step] = step.send(found)
            except StopIteration as end:
                built[step] = end.value
        compiled = iter(job.compile([one for each in wanted.values() for one in each]))
        waiting = {step: list(islice(compiled, len(each))) for step, each in wanted.items()}
    return [built[step] for step in steps]


def _build(variant: Variant | None, base: Base, job: _Job) -> _Steps:
    if variant is None or variant.target is None:
        return _Build()
    try:
        patched = patch_kernel(base, variant)
        launched = read_launched(patched.text, variant.target.kernel, job.arch, job.geometry, job.signatures)
        configs = launched.listed + launched.chosen
        found: list[Resources] = yield job.prepare(patched.text, launched.signature, configs)
        fitting = dict.fromkeys(config for config in configs if any(r.fits and r.config == config for r in found))
        companions = launched.companions(fitting)
        beside = yield [one for kernel, config in companions for one in job.prepare(patched.text, kernel, [config])]
    except (PatchError, ExtractError, TableError) as error:
        return _Build(fault=f"does not patch: {error}")
    except SignatureError as error:
        raise UsageError(str(error)) from error
    # Every configuration has one result for each use.
    first = len(launched.listed) * len(launched.signature.uses)
    rows = {str(config): rows for config, rows in launched.rows.items()}
    own = tuple(found[:first]), tuple(found[first:])
    signature = launched.signature
    build = _Build(
        patched,
        variant.target.kernel,
        *own,
        tuple(beside),
        rows,
        signature.further,
        signature.leaves_padding_out(patched.text),
    )
    return replace(build, fault=_fixed_fault(build) or launch_fault(build.listed))


def _fixed_fault(build: _Build) -> str:
    # A choice of the table and a companion are launched as they are: nothing is dropped, nothing else is tried.
    for resources in build.chosen + build.companions:
        if not resources.fits:
            remedy = "mend it in the kernel's file" if resources in build.companions else "change that row"
            return f"{build.title(resources)} cannot run: {resources.error or excess(resources)}; {remedy}"
    return ""


def _own_findings(built: _Build) -> Iterator[Finding]:
    if built.fault:
        yield Finding("refuse", built.fault)
    for resources in built.listed:
        if resources.dropped or (resources.error is None and not resources.fits):
            why = resources.error or excess(resources)
            yield Finding("pruned", f"{named(resources)} {why}; silently dropped at run time", str(resources.config))
    for use, found in built.survivors().items():
        if len(found) > 1:
            listed = " ".join(str(resources.config) for resources in found)
            what = f"{len(found)} configs survive{f' in {use}' if use else ''}: {listed}; each start draws one of them"
            yield Finding("draw", f"{what}, so image, proof and verdict are stamped 'autotune drawn'")
    for resources in built.resources + built.companions:
        if resources.fits and resources.spill_bytes:
            spilled = (
                f"spills {resources.spill_bytes} B a thread to local memory under Triton {resources.triton_version}"
            )
            what = f"{built.title(resources)} {spilled}"
            yield Finding("spill", what, str(resources.config))


def _control_findings(control: str, built: _Build, against: _Build, job: _Job) -> Iterator[Finding]:
    if against.fault:
        yield Finding("refuse", f"its control {control} cannot be built: {against.fault}")
    elif _same(built, against, job):
        too = f", that of {_names(built.companions)} included" if built.companions else ""
        what = f"same machine code as its control {control}{too}: an A/B test would compare a kernel with itself"
        yield Finding("no-op", f"{what} (sm_{job.arch}, Triton {job.toolchain.version})")


def _names(companions: Sequence[Resources]) -> str:
    return " and ".join(dict.fromkeys(resources.kernel for resources in companions))


def _same(one: _Build, other: _Build, job: _Job) -> bool:
    """Whether both launch the same code in the same way and the host code around the kernels is the same."""
    if one.patched is None or other.patched is None or one.fault or one.codes() != other.codes():
        return False
    # With one code to choose from, the autotune key chooses nothing.
    drawn = any(len({r.identity for r in found}) > 1 for found in one.survivors().values())
    if drawn and read_key(one.patched.text, one.kernel) != read_key(other.patched.text, other.kernel):
        return False
    companions = {r.kernel for r in one.companions}
    if host_code(one.patched.text, one.kernel, companions) != host_code(other.patched.text, other.kernel, companions):
        return False
    return _further_codes(one, one.patched.text, job) == _further_codes(other, other.patched.text, job)


def _further_codes(build: _Build, text: str, job: _Job) -> set[object]:
    configs = {str(r.config): r.config for r in build.resources if r.fits}
    prepared = [one for way in build.further for one in job.prepare(text, way, list(configs.values()))]
    return {(r.use, r.identity, r.error) for r in job.compile(prepared)}
