"""The gate on a variant of the repository by its name, as `invoke check` asks for it; its report is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.errors import NotReadyError, UsageError
from app.gate.gate import DEFAULT_ARCH, check
from app.gate.kept import keep_report
from app.gate.report import GateReport
from app.kernel.upstream import fetch_base, pinned
from app.kernel.variant import Change, Target, Variant
from app.kernel.variants import load_variants
from app.terminal import show
from kernels.geometry import DEEPSEEK_V4_FLASH, DEFAULT_TP, GeometryError, geometry_of, read_geometry
from kernels.toolchain import ToolchainError, is_version, toolchain_of


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
    """The gate on a variant of the repository; its report is kept for the campaigns that compare the same files.

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
    report = check(variant, control, base, arch, geometry, chain)
    keep_report(report)
    return report


def require_version(triton: str) -> None:
    """Refuses what is no version of Triton, empty for the installed one, before anything is installed; UsageError."""
    if triton and not is_version(triton):
        raise UsageError(f"{triton!r} is no Triton version; write for example 3.6.0")


def on_stock(variant: Variant) -> Variant:
    """The variant's configurations and key on the kernel of SGLang's pinned release."""
    if variant.target is None:
        return variant
    change = Change(configs=variant.change.configs, key=variant.change.key)
    return replace(variant, target=Target(variant.target.module, pinned().kernel), change=change)


def run_check(
    name: str, triton: str = "", model: str = "", *, allow_noop: bool = False, as_json: bool = False, **options: Any
) -> int:
    """Print the gate's report on a variant, options as for check_named; GateError when it may not be built."""
    report = check_named(name, triton=triton or None, model=Path(model) if model else None, **options)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        show(*report.tables(allow_noop))
    report.require(allow_noop)
    return 0
