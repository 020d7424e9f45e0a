"""Held against the gate: what a profiler saw a kernel launched with, and whether it is this build at all."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.environment import ROOT
from app.errors import NotReadyError, ProofError, UsageError
from app.gate.named import check_named
from app.gate.report import GateReport
from app.kernel.patch import patch_kernel
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from kernels.geometry import PADDED_HEADS
from kernels.resources import Resources
from kernels.signature import Signature, load_signature
from kernels.trace import Device, LaunchGroup, TraceError, read_device, read_launches

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Match:
    """One kind of launch in a trace; config names what it is of the variant, fault why it is none of it.

    config names all that launch so: two uses of a kernel may need the same threads, registers and shared memory.
    """

    group: LaunchGroup
    config: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """A trace held against a variant's compiled configurations."""

    trace: Path
    gate: GateReport
    heads: int
    matches: tuple[Match, ...]
    device: Device | None = None

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the trace belongs to another build, one phrase a kind of launch; empty when it is of this one."""
        other = self.device is not None and self.device.arch != self.gate.arch
        where = (f"recorded on {self.device.name}, sm_{self.device.arch}",) if other and self.device else ()
        return (*where, *(match.fault for match in self.matches if match.fault))

    def require(self) -> None:
        """Raise ProofError when the trace is not of this build."""
        if self.faults:
            raise ProofError(
                f"{self.trace} is of another build than {self.gate.variant} on sm_{self.gate.arch} with Triton "
                f"{self.gate.triton_version}: {'; '.join(self.faults)}"
            )

    def to_json(self) -> dict[str, Any]:
        """A plain mapping: the launches, what each is of the variant, and what the gate predicted."""
        return {
            "trace": str(self.trace),
            "device": asdict(self.device) if self.device else None,
            "heads": self.heads,
            "same_build": not self.faults,
            "launches": [
                {**asdict(m.group), "mean_us": m.group.mean_us, "config": m.config, "fault": m.fault}
                for m in self.matches
            ],
            "gate": self.gate.to_json(),
        }

    def tables(self) -> Iterator[RenderableType]:
        """The launches with their time, then the verdict on the trace."""
        from rich.table import Table
        from rich.text import Text

        table = Table(
            "config",
            "launches",
            "mean us",
            "grid",
            "threads",
            "registers",
            "shared B",
            title=f"{self.gate.kernel} in {self.trace}",
        )
        for match in self.matches:
            launch, group = match.group.launch, match.group
            facts = (_axes(launch.grid), _axes(launch.block), str(launch.registers), str(launch.shared_bytes))
            table.add_row(match.config or "another build", str(group.count), f"{group.mean_us:.2f}", *facts)
        yield table
        yield from (Text(f"refuse: {fault}") for fault in self.faults)
        yield Text(f"predicted: {self.gate.statement}")


def match_launches(
    groups: Sequence[LaunchGroup],
    predicted: Sequence[Resources],
    signature: Signature,
    heads: int,
    spare: Sequence[Resources] = (),
) -> tuple[Match, ...]:
    """Each kind of launch with the configurations it may be of.

    heads: query heads that the kernel is launched for. spare: asked where none of predicted fits.
    """
    return tuple(_match(group, predicted, signature, heads, spare) for group in groups)


def profile_variant(
    name: str,
    trace: Path | None = None,
    *,
    heads: int | None = None,
    batch: int = 96,
    out: Path | None = None,
    release: str | None = None,
    **gate_options: Any,
) -> ProfileReport:
    """Hold a trace, by default one recorded now on this machine's GPU, against the gate's figures of a variant.

    heads: given where the server launches the kernel for more heads than the rank has (SGLang pads to 64 under TP on
    some paths). out: where a recorded trace is kept. gate_options: arch, triton, model, tp of check_named.
    """
    gate = check_named(name, release=release, **gate_options)
    if not gate.kernel:
        raise UsageError(f"variant {name} runs no kernel of the file; there is nothing to compare a trace with")
    launched = heads or gate.geometry.local_heads
    if trace is None:
        trace = out or ROOT / "runs" / "traces" / f"{name}.json"
        _record(name, trace, launched, batch, release)
    try:
        device, groups = read_device(trace), read_launches(trace, gate.kernel)
    except TraceError as error:
        raise ProofError(str(error)) from error
    matches = match_launches(groups, gate.resources, load_signature(gate.kernel), launched)
    return ProfileReport(trace, gate, launched, matches, device)


def run_profile(
    name: str, *, trace: str = "", out: str = "", heads: int = 0, as_json: bool = False, **options: Any
) -> int:
    """Print what profile_variant found; ProofError when the trace is of another build."""
    from app.terminal import show

    given, kept = Path(trace) if trace else None, Path(out) if out else None
    report = profile_variant(name, given, heads=heads or None, out=kept, **options)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        show(*report.tables())
    report.require()
    return 0


def _match(
    group: LaunchGroup, predicted: Sequence[Resources], signature: Signature, heads: int, spare: Sequence[Resources]
) -> Match:
    launch = group.launch
    if fault := _grid_fault(launch.grid, signature, heads):
        return Match(group, fault=fault)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shape = (threads, launch.registers, launch.shared_bytes)
    if alike := _alike(shape, predicted) or _alike(shape, spare):
        return Match(group, config=_named(alike))
    known = ", ".join(f"{r.config} {'/'.join(map(str, _shape(r)))}" for r in (*predicted, *spare) if r.error is None)
    found = "/".join(map(str, shape))
    return Match(group, fault=f"threads/registers/shared bytes {found} are of no config, which have {known}")


def _alike(shape: tuple[int, int, int], compiled: Sequence[Resources]) -> list[Resources]:
    return [r for r in compiled if r.error is None and _shape(r) == shape]


def _shape(r: Resources) -> tuple[int, int, int]:
    return 32 * r.num_warps, r.registers, r.shared_bytes


def _named(alike: Sequence[Resources]) -> str:
    """'(16,4,2) two caches', and where launches cannot be told apart '(16,4,2) two caches or one cache'."""
    uses = dict[str, list[str]]()
    for r in alike:
        uses.setdefault(str(r.config), []).append(r.use)
    return " or ".join(f"{config} {' or '.join(dict.fromkeys(of))}".strip() for config, of in uses.items())


def _grid_fault(grid: tuple[int, int, int], signature: Signature, heads: int) -> str:
    for size, axis in zip(grid, signature.grid, strict=False):
        if axis == "heads" and size != heads:
            # SGLang 0.5.17 for every batch, 0.5.23 up to 64 rows where Triton is selected.
            hint = "; SGLang pads a rank's heads to 64 under TP, then say --heads 64" if size == PADDED_HEADS else ""
            return f"launched for {size} heads, not for {heads} (grid {_axes(grid)}){hint}"
        if "head_blocks" in axis:
            blocks = -(-heads // int(signature.constants.get("BLOCK_H", 1)))
            # An axis that several counts share can only be a multiple.
            if size % blocks or (axis == "head_blocks" and size != blocks):
                return f"{size} programs along {axis} do not fit the {blocks} head blocks of {heads} heads"
    return ""


def _axes(axes: tuple[int, int, int]) -> str:
    return "x".join(map(str, axes))


def _patched_text(name: str, release: str | None) -> str:
    variant = load_variants().get(name)
    return patch_kernel(fetch_base(release, module=variant.target.module if variant.target else None), variant).text


def _record(name: str, trace: Path, heads: int, batch: int, release: str | None) -> None:
    trace.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(_patched_text(name, release))
        file.flush()
        options = ["--heads", str(heads), "--batch", str(batch)]
        command = [sys.executable, "-m", "kernels.record", file.name, str(trace), *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise NotReadyError(f"could not profile on this machine ({last[0]}); give a trace with --trace, or use a GPU")
