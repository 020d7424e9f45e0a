"""Filling Triton's cache without a GPU, in a process of its own: python -m kernels.prebuild <request >answer.

Imports the standard library, this package and Triton only, so that any server's interpreter can run it: an entry is
found again by the very Triton that made it and by no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import linecache
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels.compiler import DROPPED_SILENTLY

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


def compiler_of(arch: int) -> dict[str, str]:
    """The Triton of this interpreter: version, and a digest of all of it and of its environment that a key holds."""
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend
    from triton.runtime.cache import triton_key

    backend = make_backend(GPUTarget("cuda", arch, 32))
    whole = f"{triton_key()}-{backend.hash()}-{sorted(get_cache_invalidating_env_vars().items())}"
    return {"version": str(triton.__version__), "sha256": hashlib.sha256(whole.encode()).hexdigest()}


def fill_cache(text: str, path: Path, first: str, arch: int, launches: list[dict[str, Any]]) -> None:
    """Compiles each launch of the kernel file `text` into the folder that TRITON_CACHE_DIR names.

    first: the kernel that the host code launches before any other. launches: {kernel, arguments [[name, type, divisible
    by 16]], constants, options}. path: where the file will lie, which debug information repeats. Configurations that
    Triton drops silently leave no entry here either.
    """
    with compiling_for(arch), _without_torch():
        module = _load(text, path)
        # In Triton 3.6 the key of a kernel depends on which functions that it calls had theirs asked for before.
        _ = _function(module, first).cache_key
        for launch in launches:
            _compile(_function(module, launch["kernel"]), launch)


@contextlib.contextmanager
def compiling_for(arch: int) -> Iterator[None]:
    """Makes launches compile for an architecture that is not here."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_Target(arch))
    try:
        yield
    finally:
        # Its own reset would look for a device.
        driver._active = before


def _load(text: str, path: Path) -> types.ModuleType:
    """The module as an import of `path` would give it: Triton's key holds a function's line number."""
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def _function(module: types.ModuleType, kernel: str) -> Any:
    function = getattr(module, kernel)
    # Autotuner and heuristics wrap the JIT function.
    while hasattr(function, "fn") and not hasattr(function, "cache_key"):
        function = function.fn
    return function


def _compile(function: Any, launch: Mapping[str, Any]) -> None:
    try:
        # Triton's own way from arguments to key: how it spells a specialisation differs between its versions.
        function.run(grid=(1,), warmup=True, **_values(launch), **launch["options"])
    except Exception as e:
        if type(e).__name__ not in DROPPED_SILENTLY:
            raise


def _values(launch: Mapping[str, Any]) -> dict[str, Any]:
    """An argument of each wanted specialisation: its value is never used."""
    return {
        name: launch["constants"][name] if kind == "constexpr" else _value(kind, divisible)
        for name, kind, divisible in launch["arguments"]
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


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *args: object) -> None:
        """Only so that old versions of typing take it for a type."""


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Lets a kernel file be loaded where torch is not: its host code is defined, never run."""
    before = sys.modules.get("torch")
    sys.modules["torch"] = _Anything("torch")
    try:
        yield
    finally:
        del sys.modules["torch"]
        if before is not None:
            sys.modules["torch"] = before


def main() -> None:
    """Answer the request {text, path, first, arch, launches} on standard input with the compiler's identity."""
    request = json.load(sys.stdin)
    if request["launches"]:
        fill_cache(request["text"], Path(request["path"]), request["first"], request["arch"], request["launches"])
    json.dump(compiler_of(request["arch"]), sys.stdout)


if __name__ == "__main__":
    main()
