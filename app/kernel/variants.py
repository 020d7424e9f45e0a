"""Variants: named changes to one kernel, read from kernels/variants/*.yaml, and what each is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from app.errors import UsageError, VariantError

if TYPE_CHECKING:
    from app.kernel.variant_files import ParsedVariant

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = ROOT / "kernels" / "variants"
Selector = Literal["triton", "flashinfer", "flashmla"]
TABLE_COLUMNS = ("variant", "control", "selector", "configs", "key", "other changes", "prediction, %", "status")


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One launch configuration: the kernel's constants, warps a program, pipeline stages of its loops."""

    constants: Mapping[str, int | bool | str]
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        if list(self.constants) == ["BLOCK_T"]:
            return f"({self.constants['BLOCK_T']},{self.num_warps},{self.num_stages})"
        named = {**self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}
        return f"({', '.join(f'{name}={value}' for name, value in named.items())})"

    def __hash__(self) -> int:
        return hash((frozenset(self.constants.items()), self.num_warps, self.num_stages))


@dataclass(frozen=True, slots=True)
class Target:
    """The kernel that a variant changes: dotted import path of its module, name of its function."""

    module: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the kernel's file: first swapped for `file`, then rewritten in place.

    file: path inside this repository. constants: module-level names and the literals they are to hold.
    """

    file: Path | None = None
    configs: tuple[KernelConfig, ...] | None = None
    key: tuple[str, ...] | None = None
    constants: Mapping[str, object] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether the file stays as it is."""
        return self == Change()


@dataclass(frozen=True, slots=True)
class Variant:
    """A named change with its hypothesis; prediction: percent of output tok/s against control, by concurrency."""

    name: str
    control: str | None
    selector: Selector
    target: Target | None
    change: Change
    hypothesis: str
    prediction: Mapping[int, tuple[float, float]]
    status: str
    path: Path


@dataclass(frozen=True, slots=True)
class Registry:
    """All variants of a folder by name."""

    variants: Mapping[str, Variant]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(sorted(self.variants))

    def get(self, name: str) -> Variant:
        """The variant of that name; UsageError lists the known ones."""
        if name not in self.variants:
            raise UsageError.unknown("variant", name, self.names)
        return self.variants[name]

    def with_controls(self, names: Sequence[str]) -> dict[str, str]:
        """Each variant that a campaign judges, with its control.

        A control that was not named is added to be measured; it is judged too when its own control is measured anyway.
        """
        if not names:
            raise UsageError(f"no variant given; known: {', '.join(self.names)}")
        named = [self.get(name) for name in dict.fromkeys(names)]
        pairs = {variant.name: variant.control for variant in named if variant.control}
        measured = {*pairs.values(), *(variant.name for variant in named)}
        for control in [self.get(name) for name in sorted(measured - pairs.keys())]:
            if control.control in measured:
                pairs[control.name] = control.control
        if idle := [v.name for v in named if v.name not in {*pairs, *pairs.values()}]:
            users = sorted(v.name for v in self.variants.values() if v.control == idle[0])
            hint = f"name one that it is the control of: {', '.join(users)}" if users else "give it a control"
            raise UsageError(f"variant {idle[0]!r} would be compared with nothing; {hint}")
        return pairs


def load_variants(folder: Path = VARIANTS, root: Path = ROOT) -> Registry:
    """The variants in a folder's *.yaml files; VariantError names file, line and what is allowed.

    root: the repository, inside which replacement files must lie.
    """
    # Deferred because reading needs PyYAML while the values above do not.
    from app.kernel.variant_files import read_variant

    if not folder.is_dir():
        raise VariantError(folder, None, "is no folder of variants")
    if stray := sorted(folder.glob("*.yml")):
        raise VariantError(stray[0], None, "would be ignored; rename it to end in .yaml")
    files = sorted(folder.glob("*.yaml"))
    if astray := next((p for p in files if not p.resolve().is_relative_to(folder.resolve())), None):
        raise VariantError(astray, None, f"leads out of {folder.name}/; put the file itself there")
    parsed = [read_variant(path, root) for path in files]
    if not parsed:
        raise VariantError(folder, None, "holds no variant (*.yaml)")
    by_name: dict[str, ParsedVariant] = {}
    for item in parsed:
        if twin := by_name.get(item.variant.name):
            # Of two, the one that does not bear its file's name is the copy that was not renamed.
            copy, first = (twin, item) if item.variant.path.stem == item.variant.name else (item, twin)
            raise copy.name.refusal(
                f"{copy.variant.name!r} is already the name of {first.variant.path}; choose another"
            )
        by_name[item.variant.name] = item
    variants = {name: item.variant for name, item in by_name.items()}
    for item in parsed:
        if item.control:
            if item.variant.control not in variants:
                raise item.control.refusal(
                    f"unknown variant {item.variant.control!r}; known: {', '.join(sorted(variants))}"
                )
            if ring := _ring(item.variant, variants):
                raise item.control.refusal(f"controls form a ring: {' -> '.join(ring)}; one of them must have none")
    return Registry(variants)


def table_rows(variants: Iterable[Variant]) -> list[tuple[str, ...]]:
    """One row a variant, in the order of TABLE_COLUMNS; an empty cell means 'as SGLang has it'."""
    return [
        (
            v.name,
            v.control or "",
            v.selector,
            " ".join(str(config) for config in v.change.configs or ()),
            ", ".join(v.change.key or ()),
            ", ".join([*([v.change.file.as_posix()] if v.change.file else ()), *v.change.constants]),
            "; ".join(f"C={c}: {low:+g}..{high:+g}" for c, (low, high) in v.prediction.items()),
            v.status,
        )
        for v in variants
    ]


def _ring(start: Variant, variants: Mapping[str, Variant]) -> list[str]:
    path = [start.name]
    while control := variants[path[-1]].control:
        if control not in variants:
            break
        if control in path:
            return [*path[path.index(control) :], control]
        path.append(control)
    return []
