"""What the gate found about one variant, as a value, as JSON and as terminal tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.errors import GateError
from kernels.geometry import Geometry
from kernels.limits import LIMITS
from kernels.resources import Resources

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = 1
Kind = Literal["refuse", "draw", "no-op", "pruned", "spill"]
# What the table shows of each configuration, in rows: it is read beside another's.
ROWS: tuple[tuple[str, Callable[[Resources], object]], ...] = (
    ("shared memory, KB", lambda r: f"{r.shared_bytes / 1024:.1f}"),
    ("registers a thread", lambda r: r.registers),
    ("stack, B a thread", lambda r: r.stack_bytes),
    ("spilled, B a thread", lambda r: r.spill_bytes),
    ("CTAs per SM", lambda r: r.ctas_per_sm),
    ("warps per SM", lambda r: r.warps_per_sm),
    ("128-bit loads", lambda r: r.wide_loads),
    ("cp.async", lambda r: r.cp_async),
    ("byte loads", lambda r: r.byte_loads),
    ("ldmatrix", lambda r: r.matrix_loads),
    ("tensor-core", lambda r: r.mma),
    ("code", lambda r: r.code_sha256[:8]),
)


# Companions have many uses and few figures that matter: one row for each launch.
COMPANION_COLUMNS = ("shared memory, KB", "registers a thread", "spilled, B a thread", "CTAs per SM", "code")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the gate found; what is a phrase that stands alone, config is empty when all are meant."""

    kind: Kind
    what: str
    config: str = ""


@dataclass(frozen=True, slots=True)
class GateReport:
    """All that compiling told of a variant and its control; kernel is empty when it runs no kernel of the file.

    companions: the kernels that the host launches beside it, of the configurations that fit. own_heads: it is launched
    for a rank's own heads, where SGLang pads them.
    """

    variant: str
    control: str
    kernel: str
    arch: int
    triton_version: str
    geometry: Geometry
    kernel_sha256: str
    findings: tuple[Finding, ...]
    resources: tuple[Resources, ...] = ()
    control_resources: tuple[Resources, ...] = ()
    companions: tuple[Resources, ...] = ()
    control_companions: tuple[Resources, ...] = ()
    control_sha256: str = ""
    own_heads: bool = False

    @property
    def statement(self) -> str:
        """What the figures are worth, for everything that shows them."""
        if not self.kernel:
            return f"{self.variant} runs no kernel of the file; nothing was compiled"
        return (
            f"compiled for sm_{self.arch} with Triton {self.triton_version}, "
            f"{self.geometry.told(self.own_heads)}; never launched, and another Triton may give other figures"
        )

    @property
    def autotune_drawn(self) -> bool:
        """Whether each start of this variant draws its configuration."""
        return any(finding.kind == "draw" for finding in self.findings)

    @property
    def same_code(self) -> bool:
        """Whether the variant is its control's machine code under another name."""
        return any(finding.kind == "no-op" for finding in self.findings)

    def buildable(self, allow_noop: bool = False) -> bool:
        """Whether an image of it may be made."""
        return self.refusal(allow_noop) is None

    def refusal(self, allow_noop: bool = False) -> str | None:
        """Why it may not be built, in one line; None when it may."""
        faults = [finding.what for finding in self.findings if finding.kind == "refuse"]
        if self.same_code and not allow_noop:
            faults += [finding.what for finding in self.findings if finding.kind == "no-op"]
            faults[-1] += "; change what the compiler sees, or --allow-noop builds it for a verdict of 'same code'"
        return f"variant {self.variant}: {'; '.join(faults)}" if faults else None

    def require(self, allow_noop: bool = False) -> None:
        """Raise GateError when it may not be built."""
        if reason := self.refusal(allow_noop):
            raise GateError(reason)

    def to_json(self) -> dict[str, Any]:
        """A plain mapping, complete enough to be compared with what runs later."""
        limits = LIMITS[self.arch]
        return {
            "schema": SCHEMA,
            "variant": self.variant,
            "control": self.control,
            "kernel": self.kernel,
            "kernel_sha256": self.kernel_sha256,
            "control_sha256": self.control_sha256,
            "target": limits.name,
            "shared_limit_bytes": limits.cta_shared_bytes,
            "triton_version": self.triton_version,
            "geometry": {
                **asdict(self.geometry),
                "local_heads": self.geometry.local_heads,
                "block_h": self.geometry.block_h,
            },
            "statement": self.statement,
            "buildable": self.buildable(),
            "autotune_drawn": self.autotune_drawn,
            "same_code": self.same_code,
            "findings": [asdict(finding) for finding in self.findings],
            "configs": [resources.to_json() for resources in self.resources],
            "control_configs": [resources.to_json() for resources in self.control_resources],
            "companions": [resources.to_json() for resources in self.companions],
            "control_companions": [resources.to_json() for resources in self.control_companions],
        }

    def tables(self, allow_noop: bool = False) -> Iterator[RenderableType]:
        """The compiled figures, the findings, and what they are worth, to be printed in this order."""
        from rich.table import Table
        from rich.text import Text

        shown = [*((self.variant, r) for r in self.resources), *((self.control, r) for r in self.control_resources)]
        if shown:
            table = Table("", *(f"{of}\n{r.config}\n{r.use}".strip() for of, r in shown), title=self.kernel)
            for name, figure in ROWS:
                table.add_row(name, *("" if r.error else str(figure(r)) for _, r in shown))
            table.add_row("launchable", *(_launchable(r) for _, r in shown))
            yield table
        yield from _companion_tables(self.variant, self.companions)
        yield from _companion_tables(self.control, self.control_companions)
        for finding in self.findings:
            yield Text(f"{finding.kind}: {finding.what}")
        yield Text(
            f"{self.variant}: {'buildable' if self.buildable(allow_noop) else 'not buildable'}; {self.statement}"
        )


def _companion_tables(of: str, beside: tuple[Resources, ...]) -> Iterator[RenderableType]:
    from rich.table import Column, Table

    figures = dict(ROWS)
    for title in dict.fromkeys(_launch_of(r) for r in beside):
        table = Table(Column("", no_wrap=True), *COMPANION_COLUMNS, title=f"{title}, launched beside {of}")
        for r in beside:
            if _launch_of(r) == title:
                table.add_row(r.use, *("" if r.error else str(figures[name](r)) for name in COMPANION_COLUMNS))
        yield table


def _launch_of(companion: Resources) -> str:
    return f"{companion.kernel} {companion.config}"


def _launchable(resources: Resources) -> str:
    if resources.error is not None:
        return "pruned" if resources.dropped else "no"
    return "yes" if resources.fits else "pruned"
