"""All variants by name, read from kernels/variants/*.yaml, and what each is compared with."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app.environment import ROOT
from app.errors import KernelMissingError, PatchError, UsageError, VariantError
from app.kernel.variant import Variant

if TYPE_CHECKING:
    from app.kernel.variant_files import ParsedVariant

VARIANTS = ROOT / "kernels" / "variants"
CONTROL_NEEDED = (
    "control: NAME of a variant with the same target, such as a copy of its file without change and control"
)
TABLE_COLUMNS = ("variant", "control", "selector", "configs", "key", "other changes", "prediction, %", "status")


@dataclass(frozen=True, slots=True)
class Registry:
    """All sound variants of a folder by name; faults: what is wrong with each other file, by its stem."""

    variants: Mapping[str, Variant]
    faults: Mapping[str, VariantError] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(sorted(self.variants))

    def get(self, name: str) -> Variant:
        """The variant of that name; its own fault where its file has one, else UsageError lists the known ones."""
        if name not in self.variants and name in self.faults:
            raise self.faults[name]
        for fault in self.faults.values():
            _tell_once(f"lab: {fault} (left out: not asked for)")
        if name not in self.variants:
            raise UsageError(_unknown(name, self.variants))
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
            hint = (
                f"name one that it is the control of: {', '.join(users)}" if users else f"give it one: {CONTROL_NEEDED}"
            )
            raise UsageError(f"variant {idle[0]!r} would be compared with nothing; {hint}")
        return pairs


def load_variants(folder: Path = VARIANTS, root: Path = ROOT, strict: bool = False) -> Registry:
    """The variants in a folder's *.yaml files; a file's VariantError names file, line and what is allowed.

    root: the repository, inside which replacement files must lie. strict: raise the first file's fault; else it is
    raised for who asks for that variant, or when no file is sound.
    """
    if not folder.is_dir():
        raise VariantError(folder, None, "is no folder of variants")
    parsed, faults = _read_files(folder, root)
    by_name = _named(parsed, faults)
    variants = {name: item.variant for name, item in by_name.items()}
    astray = {name: fault for name, item in by_name.items() if (fault := _control_fault(item, variants, faults, root))}
    sound = {name: variant for name, variant in variants.items() if name not in astray}
    faults |= astray
    if faults and (strict or not sound):
        raise next(iter(faults.values()))
    if not sound:
        raise VariantError(folder, None, "holds no variant (*.yaml)")
    return Registry(sound, faults)


def mismatch(variant: Variant, control: Variant) -> str | None:
    """Why the two cannot be compared, and what can be; None when they can.

    They can where both run one kernel, where the file itself is what differs, and where one runs no kernel file.
    """
    own, other = variant.target, control.target
    if own is None or other is None or own == other:
        return None
    if own.module == other.module and variant.change.file != control.change.file:
        return None
    return (
        f"{control.name!r} targets {other.kernel} of {other.module}, "
        f"not {own.kernel} of {own.module}; needed is {CONTROL_NEEDED}"
    )


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


def _read_files(folder: Path, root: Path) -> tuple[list[ParsedVariant], dict[str, VariantError]]:
    # Deferred because reading needs PyYAML while the values above do not.
    from app.kernel.variant_files import read_variant

    parsed: list[ParsedVariant] = []
    faults = {
        p.stem: VariantError(p, None, "would be ignored; rename it to end in .yaml") for p in folder.glob("*.yml")
    }
    for path in sorted(folder.glob("*.yaml")):
        try:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise VariantError(path, None, f"leads out of {folder.name}/; put the file itself there")
            parsed.append(read_variant(path, root))
        except VariantError as fault:
            faults[path.stem] = fault
    return parsed, faults


def _named(parsed: Sequence[ParsedVariant], faults: dict[str, VariantError]) -> dict[str, ParsedVariant]:
    by_name: dict[str, ParsedVariant] = {}
    doubtful: set[str] = set()
    for item in parsed:
        name, path = item.variant.name, item.variant.path
        if twin := by_name.get(name):
            # Of two, the one that does not bear its file's name is the copy that was not renamed.
            copy, first = (twin, item) if path.stem == name else (item, twin)
            stem = copy.variant.path.stem
            taken = f"{name!r} is already the name of {first.variant.path}"
            fault = copy.name.refusal(f"{taken}; choose another{_after_its_file(stem) if stem != name else ''}")
            faults[stem] = fault
            if first.variant.path.stem != name:
                faults[name] = fault
                doubtful.add(name)
            item = first
        by_name[name] = item
    return {name: item for name, item in by_name.items() if name not in doubtful}


def _after_its_file(stem: str) -> str:
    # Deferred as in _read_files.
    from app.kernel.variant_files import name_fault

    fault = name_fault(stem)
    return f", and rename the file after it: its own {stem!r} {fault}" if fault else f", such as its file's: {stem}"


def _control_fault(
    item: ParsedVariant, variants: Mapping[str, Variant], faults: Mapping[str, VariantError], root: Path
) -> VariantError | None:
    name = item.variant.control
    # A control with a fault of its own is refused by it, where it is asked for.
    if item.control is None or name is None or (name in faults and name not in variants):
        return None
    if name not in variants:
        return item.control.refusal(_unknown(name, variants))
    if ring := _ring(item.variant, variants):
        return item.control.refusal(f"controls form a ring: {' -> '.join(ring)}; one of them must have none")
    if why := mismatch(item.variant, variants[name]):
        return _kernel_fault(item, root) or item.control.refusal(why)
    return None


def _kernel_fault(item: ParsedVariant, root: Path) -> VariantError | None:
    """That a variant's file has no function of the name that its target gives; None too where that file is not here."""
    # Deferred: only a variant that differs from its control asks.
    from app.kernel.source import find_kernel, parse_source
    from app.kernel.upstream import held_text

    target, file = item.variant.target, item.variant.change.file
    if target is None or item.kernel is None:
        return None
    path = file.as_posix() if file else f"SGLang's {target.module.rpartition('.')[2]}.py"
    text = (root / file).read_text(encoding="utf-8", errors="replace") if file else held_text(target.module)
    if not text:
        return None
    try:
        find_kernel(parse_source(text), target.kernel)
    except KernelMissingError as missing:
        return item.kernel.refusal(f"variant {item.variant.name!r} changes {path}, which has {missing}")
    except PatchError:
        return None
    return None


def _unknown(name: str, variants: Mapping[str, Variant]) -> str:
    if found := next((v for v in variants.values() if v.path.stem == name), None):
        # Deferred as in _read_files.
        from app.kernel.variant_files import name_fault

        fault = name_fault(name)
        mend = f"rename the file, as a name {fault}" if fault else f"write name: {name} there"
        return f"no variant is named {name!r}: {found.path} says name: {found.name}; {mend}, or ask for {found.name}"
    near = "".join(f". Did you mean {known}?" for known in difflib.get_close_matches(name, variants, n=1))
    return f"unknown variant {name!r}; known: {', '.join(sorted(variants)) or 'none'}{near}"


@functools.cache
def _tell_once(line: str) -> None:
    print(line, file=sys.stderr)


def _ring(start: Variant, variants: Mapping[str, Variant]) -> list[str]:
    path = [start.name]
    while control := variants[path[-1]].control:
        if control not in variants:
            break
        if control in path:
            return [*path[path.index(control) :], control]
        path.append(control)
    return []
