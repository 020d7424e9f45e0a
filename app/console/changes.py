"""The variants, what can be changed in SGLang's kernel files, and what one changes there or beside its control."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from app.environment import ROOT
from app.errors import UsageError
from app.kernel.autotuned import autotuned_kernels, lay_out
from app.kernel.patch import difference, patch_kernel
from app.kernel.source import parse_source
from app.kernel.upstream import Base, fetch_base, pinned
from app.kernel.variant import Variant
from app.kernel.variants import CONTROL_NEEDED, TABLE_COLUMNS, Registry, load_variants, table_rows
from app.terminal import show

AGAINST = ("pristine", "control")


def show_variants(as_json: bool) -> None:
    """Prints the table of variants."""
    registry = load_variants(strict=True)
    rows = table_rows(registry.get(name) for name in registry.names)
    if as_json:
        print(json.dumps([dict(zip(TABLE_COLUMNS, row, strict=True)) for row in rows], indent=1))
        return
    table = Table(*TABLE_COLUMNS, title="variants")
    for row in rows:
        table.add_row(*row)
    show(table)


def show_kernels(as_json: bool) -> None:
    """Prints the pinned release's autotuned kernels and where pristine copies of their files lie."""
    found = autotuned_kernels()
    if as_json:
        print(json.dumps([asdict(kernel) | {"pristine": str(kernel.pristine)} for kernel in found], indent=1))
        return
    table = Table("kernel", "module", "configs", title=f"autotuned kernels of SGLang {pinned().version}")
    for k in found:
        table.add_row(k.kernel, k.module, "made by code" if k.configs is None else str(k.configs))
    show(table)
    print("pristine files, to copy and change:", *sorted({str(k.pristine) for k in found}), sep="\n")


def show_new_variant(name: str, origin: str) -> None:
    """Writes a new variant's file and prints where it is and what comes next."""
    # Deferred with its templates, which no other task here needs.
    from app.kernel.draft import write_draft

    print(f"{write_draft(name, origin).relative_to(ROOT)} has the change of {origin}, and {origin} as its control")
    print(f"change a number in it, then: invoke diff --variant {name} --against control; invoke check --variant {name}")


def show_diff(variant: str, release: str, against: str) -> None:
    """Prints a variant's unified diff; against: one of AGAINST, or empty to see what matters of a replacement file."""
    if against and against not in AGAINST:
        raise UsageError.unknown("file to diff against", against, AGAINST)
    registry = load_variants()
    found = registry.get(variant)
    if against == "control":
        text = from_control(found, registry, release)
    else:
        text = from_pristine(found, release, whole=against == "pristine")
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "diff"))
    else:
        print(text, end="")


def from_pristine(variant: Variant, release: str, whole: bool = False) -> str:
    """The change from the pristine file; for a replacement with a kernel of its own only what changes inside that.

    whole: the change from the pristine file for such a replacement too.
    """
    base = _base(variant, release)
    patched = patch_kernel(base, variant)
    if variant.change.file is None:
        return patched.diff or f"{variant.name} leaves {patched.relative_path} as it is\n"
    head = f"# {variant.name} replaces the whole of {patched.relative_path} by {variant.change.file}"
    if whole or _has_kernel(base, variant):
        return f"{head}{', a changed copy' if patched.diff else ', an equal copy'}\n{patched.diff}"
    inside = "in which it changes:" if patched.edits else "as that file stands"
    own = f"# SGLang's file, {lay_out(base)}, has no such kernel; --against pristine shows the whole difference"
    return f"{head}, {inside}\n{own}\n{patched.edits}"


def from_control(variant: Variant, registry: Registry, release: str) -> str:
    """The change from the file that the variant's control runs; UsageError for a variant without a control."""
    if variant.control is None:
        raise UsageError(f"{variant.name} has no control to diff it with; give it one: {CONTROL_NEEDED}")
    control = registry.get(variant.control)
    base = _base(variant if variant.target else control, release)
    own, other = patch_kernel(base, variant), patch_kernel(base, control)
    selectors = f"# {control.name} runs by selector {control.selector}, {variant.name} by {variant.selector}\n"
    told = selectors if control.selector != variant.selector else ""
    text = difference(other.text, own.text, own.relative_path)
    return told + (text or f"{variant.name} and its control {control.name} have the same {own.relative_path}\n")


def _base(variant: Variant, release: str) -> Base:
    return fetch_base(release or None, module=variant.target.module if variant.target else None)


def _has_kernel(base: Base, variant: Variant) -> bool:
    return variant.target is not None and variant.target.kernel in {f.name for f in parse_source(base.text).functions}
