"""Compiling one kernel for a target with no GPU, in a process of its own: python -m kernels.compiler <request >answer.

Imports the standard library, this package and Triton only, so that it runs under any Triton version's interpreter; a
compiler that crashes takes no more than this process with it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.sass import InstructionMix, code_sha256

# Triton's autotuner drops a configuration that raises one of these, and says nothing.
DROPPED_SILENTLY = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
_USED = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def compile_request(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Facts of the compiled kernel, or {error, error_kind}.

    request: source (only what the kernel needs), kernel, arguments [[name, type, attribute]] in the kernel's order with
    type "constexpr" for constants, constants {name: value}, arch, options {num_warps, num_stages}.
    """
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # The log goes to standard output and is the one place that tells spills from other stack.
    knobs.nvidia.dump_ptxas_log = True
    log = io.StringIO()
    try:
        function = _load(request["source"], request["kernel"], folder / "kernel.py")
        source = ASTSource(
            function,
            {name: kind for name, kind, _ in request["arguments"]},
            {name: _constant(value) for name, value in request["constants"].items()},
            {(i,): [["tt.divisibility", 16]] for i, (_, _, divisible) in enumerate(request["arguments"]) if divisible},
        )
        with contextlib.redirect_stdout(log):
            compiled = triton.compile(source, target=GPUTarget("cuda", request["arch"], 32), options=request["options"])
    # Triton and LLVM raise their own and plain RuntimeError alike; whatever it was becomes the answer.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return {"error": _gist(lines) or type(error).__name__, "error_kind": type(error).__name__}
    cubin = compiled.asm["cubin"]
    (folder / "kernel.cubin").write_bytes(cubin)
    listing = subprocess.run(
        [knobs.nvidia.cuobjdump.path, "-sass", str(folder / "kernel.cubin")], capture_output=True, text=True, check=True
    ).stdout
    mix = InstructionMix.of(listing)
    return {
        **_read_log(log.getvalue()),
        "shared_bytes": compiled.metadata.shared,
        "num_warps": compiled.metadata.num_warps,
        "code_sha256": code_sha256(cubin),
        **{name: getattr(mix, name) for name in InstructionMix.__slots__},
    }


def _load(source: str, kernel: str, path: Path) -> Any:
    # Triton reads a function's source back from its file.
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel_under_test", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, kernel)


def _constant(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("tl."):
        import triton.language as tl

        return getattr(tl, value.removeprefix("tl."))
    return value


def _read_log(log: str) -> dict[str, int]:
    used, frame = _USED.search(log), _FRAME.search(log)
    if used is None or frame is None:
        raise RuntimeError(f"ptxas said nothing of registers and stack: {log[:200]!r}")
    stack, stores, loads = (int(n) for n in frame.groups())
    return {"registers": int(used.group(1)), "stack_bytes": stack, "spill_bytes": max(stores, loads)}


def _gist(lines: list[str]) -> str:
    # Triton's own message comes last, after an excerpt of the source with a caret under it.
    useful = [line for line in lines if set(line) - {"^", " ", "=", "~"} and not line.startswith("//")]
    return " ".join(useful[:1] + useful[-1:] if len(useful) > 1 else useful)[:400]


def main() -> None:
    """Answer the request on standard input with one JSON object on standard output."""
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as name:
        # A cached compile has no ptxas log, so Triton's own cache is never reused.
        os.environ["TRITON_CACHE_DIR"] = name
        answer = compile_request(request, Path(name))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
