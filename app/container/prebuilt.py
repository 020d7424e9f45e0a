"""Triton's compile results for a variant, made at build so that the first request compiles nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import linecache
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.kernel.patch import PatchedKernel, read_configs
from app.kernel.variants import KernelConfig
from kernels.compiler import DROPPED_SILENTLY
from kernels.geometry import Geometry, default_geometry
from kernels.signature import Signature, load_signature
from kernels.tuned import read_choices

# Torch's names of Triton's element types.
DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp8e4nv": "float8_e4m3fn",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
}
# What a launch and a profiler read; the intermediate forms are ten times as large and read by nobody.
KEPT = (".cubin", ".json", ".ptx")
# Triton's own number of pipeline stages, for a launch that names none.
DEFAULT_STAGES = 3
# Bytes by path inside Triton's cache folder.
Prebuilt = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Launch:
    """One specialisation that the host code launches: arguments as (name, type, divisible by 16), in order."""

    kernel: str
    arguments: list[tuple[str, str, bool]]
    constants: Mapping[str, Any]
    options: Mapping[str, int]


def prebuild(patched: PatchedKernel, path: Path, arch: int) -> Prebuilt:
    """Cache entries of every configuration that the autotuner or the table may launch, in every use of the kernel.

    path: where the kernel will lie in the image; the entries' debug information holds it, so it is the same in every
    build. Configurations that Triton drops silently leave no entry here either.
    """
    if patched.kernel is None:
        return {}
    with tempfile.TemporaryDirectory() as folder, _cache_in(folder), _compiling_for(arch):
        for launch in launches(patched.text, patched.kernel, arch, default_geometry()):
            _compile(load_kernel(patched.text, path, launch.kernel), launch)
        files = [p for p in sorted(Path(folder).rglob("*")) if p.suffix in KEPT]
        return {str(p.relative_to(folder)): _portable(p) for p in files}


def _portable(file: Path) -> bytes:
    # Group files hold absolute paths of their members, here those of a temporary folder.
    if not file.name.startswith("__grp__"):
        return file.read_bytes()
    members = json.loads(file.read_bytes())["child_paths"]
    kept = [name for name in sorted(members) if Path(name).suffix in KEPT]
    return json.dumps({"child_paths": {name: name for name in kept}}).encode()


def launches(text: str, kernel: str, arch: int, geometry: Geometry) -> Iterator[Launch]:
    """Every launch that the signature files and the configurations in the file give, companions' once each."""
    signature = load_signature(kernel)
    chosen, covered = read_choices(text, signature.table, arch, geometry) if signature.table else ([], False)
    configs = [*([] if covered else read_configs(text, kernel))]
    configs += [KernelConfig(c.constants, c.num_warps, c.num_stages) for c in chosen]
    beside = list[tuple[Signature, KernelConfig]]()
    for config in configs:
        yield from _launches_of(signature, text, geometry, config)
        for companion in map(load_signature, signature.companions_of(config)):
            shared = {name: v for name, v in config.constants.items() if name in companion.constants}
            if (entry := (companion, KernelConfig(shared, companion.num_warps, DEFAULT_STAGES))) not in beside:
                beside.append(entry)
    for companion, config in beside:
        yield from _launches_of(companion, text, geometry, config)


def _launches_of(signature: Signature, text: str, geometry: Geometry, config: KernelConfig) -> Iterator[Launch]:
    for use in signature.uses:
        arguments, constants = use.bind(text, geometry, config)
        yield Launch(signature.kernel, arguments, constants, use.options(text, config))


def load_kernel(text: str, path: Path, kernel: str) -> Any:
    """The kernel's JIT function as an import of `path` would give it: Triton's key holds the function's line number."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    with _importable_torch():
        exec(compile(text, str(path), "exec"), module.__dict__)
    function = getattr(module, kernel)
    # Autotuner and heuristics wrap the JIT function.
    while hasattr(function, "fn") and not hasattr(function, "cache_key"):
        function = function.fn
    return function


def _compile(function: Any, launch: Launch) -> None:
    try:
        # Triton's own way from arguments to key: how it spells a specialisation differs between its versions.
        function.run(grid=(1,), warmup=True, **_values(launch), **launch.options)
    except Exception as e:
        if type(e).__name__ not in DROPPED_SILENTLY:
            raise


def _values(launch: Launch) -> dict[str, Any]:
    """An argument of each wanted specialisation: its value is never used."""
    return {
        name: launch.constants[name] if kind == "constexpr" else _value(kind, divisible)
        for name, kind, divisible in launch.arguments
    }


def _value(kind: str, divisible: bool) -> Any:
    if kind.startswith("*"):
        return Pointer(kind[1:], 0 if divisible else 1)
    return 0.5 if kind.startswith("fp") else 16 if divisible else 3


class Pointer:
    """A tensor as far as Triton looks at one before a launch: element type and address."""

    def __init__(self, kind: str, address: int) -> None:
        self.dtype, self._address = DTYPES[kind], address

    def data_ptr(self) -> int:
        return self._address


class _Target:
    """A driver with a target and no device."""

    def __init__(self, arch: int) -> None:
        self._arch = arch

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._arch, 32)


@contextlib.contextmanager
def _compiling_for(arch: int) -> Iterator[None]:
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_Target(arch))
    try:
        yield
    finally:
        # Its own reset would look for a device.
        driver._active = before


@contextlib.contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        yield
    finally:
        del os.environ["TRITON_CACHE_DIR"]
        if before is not None:
            os.environ["TRITON_CACHE_DIR"] = before


@contextlib.contextmanager
def _importable_torch() -> Iterator[None]:
    """Lets a kernel file be loaded where torch is not: its host code is defined, never run."""
    if importlib.util.find_spec("torch") is not None:
        yield
        return

    class Anything(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything(name)

    sys.modules["torch"] = Anything("torch")
    try:
        yield
    finally:
        del sys.modules["torch"]
