"""Compiling kernels for a target with no GPU, each in a process of its own: python -m kernels.compiler ANSWERS <asked.

Imports the standard library, this package and Triton only, so that it runs under any Triton version's interpreter. That
is loaded once and each kernel's process forked from there; a compiler that crashes takes no other kernel with it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernels.processes import begin, end_session, end_when_told, next_ended
from kernels.sass import InstructionMix, code_sha256

# Triton's autotuner drops a configuration that raises one of these, and says nothing.
DROPPED_SILENTLY = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
# Of a kernel's compilation, and of reading its machine code.
TIMEOUT_S, LISTING_S = 300.0, 60.0
CUBIN, LISTING, ANSWER, SAID = "kernel.cubin", "listing", "answer.json", "said"
_USED = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def compile_request(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Facts of the compiled kernel, or {error, error_kind}; leaves its machine code in the folder.

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
    (folder / CUBIN).write_bytes(cubin)
    return {
        **_read_log(log.getvalue()),
        "shared_bytes": compiled.metadata.shared,
        "num_warps": compiled.metadata.num_warps,
        "code_sha256": code_sha256(cubin),
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


def crash(what: str, code: int, said: str, limit_s: float) -> dict[str, Any]:
    """The answer where a process ended without one; its limit is told by SIGALRM."""
    if code == -signal.SIGALRM:
        return failure(f"{what} did not end within {limit_s:g} s")
    return failure(f"{what} ended with {code}: {' '.join(said.strip().splitlines()[-1:])}")


def failure(why: object) -> dict[str, Any]:
    """An answer that may be the machine's fault."""
    return {"error": str(why), "error_kind": "Crash"}


# Yields each process that it begins, is sent its exit code, and returns the answer.
_Steps = Generator[int, int | None, dict[str, Any]]


def _side_by_side(
    requests: Sequence[Mapping[str, Any]], at_once: int, folder: Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each request's number with its answer, as they come."""
    waiting: list[tuple[int, _Steps, int | None]] = [
        (number, _steps(request, folder / str(number)), None) for number, request in enumerate(requests)
    ]
    running = dict[int, tuple[int, _Steps]]()
    while waiting or running:
        if not waiting or len(running) == at_once:
            child, code = next_ended()
            # Behind the kernels that come next: a short step fills the time in which the last compiles alone.
            waiting.insert(at_once, (*running.pop(child), code))
        number, steps, sent = waiting.pop(0)
        try:
            running[steps.send(sent)] = number, steps
        except StopIteration as end:
            yield number, end.value


def _steps(request: Mapping[str, Any], folder: Path) -> _Steps:
    try:
        folder.mkdir()
        return (yield from _compiled(request, folder))
    # No room, no process or no program for it, which may be there for the next.
    except (OSError, RuntimeError) as error:
        return failure(f"the compiler cannot work: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compiled(request: Mapping[str, Any], folder: Path) -> _Steps:
    said = folder / SAID
    if code := (yield begin(partial(_compile_into, folder, request), said, TIMEOUT_S)):
        return crash("the compiler", code, said.read_text(errors="replace"), TIMEOUT_S)
    answer = dict(json.loads((folder / ANSWER).read_text()))
    if "error" not in answer:
        if code := (yield begin(partial(_list_into, folder, _disassembler()), said, LISTING_S)):
            return crash("listing the machine code", code, said.read_text(errors="replace"), LISTING_S)
        mix = InstructionMix.of((folder / LISTING).read_text())
        answer |= {name: getattr(mix, name) for name in InstructionMix.__slots__}
    return answer


def _compile_into(folder: Path, request: Mapping[str, Any]) -> None:
    # A cached compile has no ptxas log, so Triton's own cache is never reused.
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    # Triton forgets its temporary files where it is killed.
    tempfile.tempdir = str(folder)
    (folder / ANSWER).write_text(json.dumps(compile_request(request, folder)))


def _disassembler() -> str:
    from triton import knobs

    return str(knobs.nvidia.nvdisasm.path)


def _list_into(folder: Path, disassembler: str) -> None:
    os.dup2(os.open(folder / LISTING, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    # Code only and no analysis of its data flow: a quarter less time than cuobjdump, which calls the same program.
    os.execv(disassembler, [disassembler, "--print-code", "--no-dataflow", str(folder / CUBIN)])


def _load_triton() -> None:
    """All of it that a compile needs, so that no kernel's process has to."""
    from triton.runtime import cache

    importlib.import_module("triton.compiler.code_generator")
    # A digest of all of Triton, half a gigabyte, which names entries of a cache that is thrown away.
    cache.triton_key = lambda: ""


def main() -> None:
    """Answer [how many at once, requests] on standard input with a line [number, answer] for each, as they come.

    The lines go to the descriptor that the command line names, so that whatever else is printed is no answer.
    """
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    end_when_told(descriptor)
    at_once, requests = json.load(sys.stdin)
    _load_triton()
    with os.fdopen(descriptor, "w") as answers, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        try:
            for answered in _side_by_side(requests, at_once, Path(name)):
                print(json.dumps(answered), file=answers, flush=True)
        finally:
            # Nobody is left to be answered.
            end_session(os.getpid())


if __name__ == "__main__":
    main()
