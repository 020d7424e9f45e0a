"""Puts each variant's kernel file where a local stack can run it, always from the pristine base."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from app.kernel.patch import patch_kernel
from app.kernel.placed import PlacedKernel
from app.kernel.upstream import Base
from app.kernel.variant import Variant
from app.kernel.variants import Registry
from app.records import write_text


def place_kernels(registry: Registry, names: Iterable[str], base: Base, folder: Path) -> dict[str, PlacedKernel]:
    """Writes each patched file to folder/<variant>/ and reads its hash back from disk."""
    return {name: _place(registry.get(name), base, folder / name) for name in names}


def _place(variant: Variant, base: Base, folder: Path) -> PlacedKernel:
    patched = patch_kernel(base, variant)
    path = folder / Path(patched.relative_path).name
    write_text(path, patched.text)
    return PlacedKernel(
        variant=variant.name,
        selector=variant.selector,
        path=path.resolve(),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        base_sha256=patched.base_sha256,
        kernel=patched.kernel,
    )
