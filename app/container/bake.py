"""Makes a variant's kernel layer inside a build stage: patch, gate, prebuilt cache entries, identity, fixed times."""

from __future__ import annotations

import hashlib
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file

from app.container.layer import LayerTree
from app.container.location import installed_file, installed_version
from app.errors import GateError
from app.gate.prebuilt import Prebuilt, prebuild
from app.image.identity import BAKED, IDENTITY, Identity
from app.kernel.patch import PatchedKernel, patch_kernel, read_configs
from app.kernel.upstream import Base, pinned, pristine
from app.kernel.variant import Variant
from app.kernel.variants import load_variants

# flashmla is SGLang's default on sm_90 only; elsewhere its name would select the slow PyTorch path.
FLASHMLA_ARCH = 90


def bake_layer(name: str, engine: str, release: str, arch: int, out: Path) -> Identity:
    """Writes the variant's kernel layer under `out` and returns its identity.

    Raises UsageError for an unknown variant, UnknownBaseError when the installed file is not the pinned one, GateError
    when the variant cannot be built for this arch.
    """
    variant, pin = load_variants().get(name), pinned(release)
    kernel_file = installed_file(pin.file)
    base = pristine(kernel_file.read_bytes(), pin, str(kernel_file))
    patched = patch_kernel(base, variant)
    if variant.selector == "flashmla" and arch != FLASHMLA_ARCH:
        raise GateError(f"{name} is sm_90's default and does not exist on sm_{arch}; build it with CUDA_ARCH=90")
    prebuilt = _gated(variant, base, patched, kernel_file, arch) if engine == "sglang" and variant.target else {}
    tree = LayerTree(out)
    identity = _identity(variant, patched, prebuilt, engine, kernel_file, release, arch)
    _add_kernel(tree, kernel_file, patched.text.encode())
    for entry, data in prebuilt.items():
        tree.add(BAKED / entry, data)
    tree.add(IDENTITY, identity.dump())
    tree.seal()
    return identity


def _gated(variant: Variant, base: Base, patched: PatchedKernel, kernel_file: Path, arch: int) -> Prebuilt:
    from app.gate.gate import check

    control = load_variants().get(variant.control) if variant.control else None
    report = check(variant, control, base, arch=arch)
    print(report.statement)
    # A control that is the same code as its own control is no reason against an image of it.
    report.require(allow_noop=True)
    return prebuild(patched.text, variant.target.kernel, kernel_file, arch) if variant.target else {}


def _identity(
    variant: Variant, patched: PatchedKernel, baked: Prebuilt, engine: str, kernel_file: Path, release: str, arch: int
) -> Identity:
    kernel = patched.kernel or ""
    return Identity(
        variant=variant.name,
        control=variant.control,
        engine=engine,
        selector=variant.selector,
        kernel=kernel,
        kernel_file=str(kernel_file),
        kernel_sha256=patched.sha256,
        base_sha256=patched.base_sha256,
        sglang_version=installed_version("sglang") or release,
        triton_version=installed_version("triton"),
        cuda_arch=arch,
        configs=tuple(str(c) for c in read_configs(patched.text, kernel)) if variant.target else (),
        baked={name: hashlib.sha256(data).hexdigest() for name, data in sorted(baked.items())},
    )


def _add_kernel(tree: LayerTree, path: Path, data: bytes) -> None:
    source = tree.add(path, data)
    # The base's bytecode would be looked at first; this one is valid for exactly these bytes, whatever their time.
    bytecode = tree.add(Path(cache_from_source(str(path))), b"")
    compile_file(str(source), str(bytecode), str(path), True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
