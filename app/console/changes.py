"""What `invoke diff` shows: what a variant changes in SGLang's kernel file, or in what its control runs."""

from __future__ import annotations

from rich.console import Console
from rich.syntax import Syntax

from app.errors import UsageError
from app.kernel.patch import PatchedKernel, difference, patch_kernel
from app.kernel.upstream import fetch_base
from app.kernel.variants import Registry, Variant, load_variants

AGAINST = ("pristine", "control")


def show_diff(variant: str, release: str, against: str) -> None:
    """Prints a variant's unified diff; against: one of AGAINST."""
    if against not in AGAINST:
        raise UsageError.unknown("file to diff against", against, AGAINST)
    registry = load_variants()
    found = registry.get(variant)
    text = from_control(found, registry, release) if against == "control" else from_pristine(found, release)
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "diff"))
    else:
        print(text, end="")


def from_pristine(variant: Variant, release: str) -> str:
    """The change from the pristine file, or inside the variant's replacement file where it has one."""
    patched = _patched(variant, release)
    text = patched.edits if variant.change.file else patched.diff
    if variant.change.file:
        whole = f"# {variant.name} replaces the whole of {patched.relative_path} by {variant.change.file}"
        text = f"{whole}{', in which it changes:' if text else ', as that file stands'}\n{text}"
    return text or f"{variant.name} leaves {patched.relative_path} as it is\n"


def from_control(variant: Variant, registry: Registry, release: str) -> str:
    """The change from the file that the variant's control runs; UsageError for a variant without a control."""
    if variant.control is None:
        raise UsageError(f"{variant.name} has no control; diff it with --against pristine")
    control = registry.get(variant.control)
    own, other = _patched(variant, release), _patched(control, release)
    selectors = f"# {control.name} runs by selector {control.selector}, {variant.name} by {variant.selector}\n"
    told = selectors if control.selector != variant.selector else ""
    text = difference(other.text, own.text, own.relative_path)
    return told + (text or f"{variant.name} and its control {control.name} have the same {own.relative_path}\n")


def _patched(variant: Variant, release: str) -> PatchedKernel:
    return patch_kernel(fetch_base(release or None, module=variant.target.module if variant.target else None), variant)
