"""Small Triton modules that compile fast, one for each thing that the gate can find."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from kernels.toolchain import Toolchain

HEAD = """\
import module_that_is_not_here
import triton
import triton.language as tl

WIDTH = tl.constexpr(16)
UNUSED = module_that_is_not_here.anything


def host():
    return UNUSED


@triton.jit
def _twice(x):
    return x + x


@triton.autotune(configs=[triton.Config({{"BLOCK": 64}}, num_warps=4, num_stages=2)], key=["n"])
@triton.jit
def _demo_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
{body}"""

# Shared memory grows with BLOCK and num_stages; uses tensor cores.
DOT = HEAD.format(
    body="""\
    rows = tl.arange(0, WIDTH)
    cols = tl.arange(0, BLOCK)
    acc = tl.zeros((WIDTH, BLOCK), tl.float32)
    for i in range(0, n, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * n + i + cols[None, :])
        b = tl.load(b_ptr + (i + cols)[:, None] * BLOCK + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * BLOCK + cols[None, :], _twice(acc))
"""
)

# Nothing to pipeline: num_stages changes no instruction.
PLAIN = HEAD.format(
    body="""\
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(c_ptr + at, _twice(x), mask=at < n)
"""
)

SIGNATURE = """\
kernel: _demo_kernel
arguments:
  a_ptr: "*bf16:16"
  b_ptr: "*bf16:16"
  c_ptr: "*fp32:16"
  n: "i32:16"
"""


# Launched beside the demo kernel where BLOCK is 64. A constant that changes its code, one that changes nothing, one of
# the host's.
MERGE = """\
WEIGHT = 1
SPARE = 1
TRIES = 1


def launch():
    return TRIES, _merge_demo


@triton.jit
def _merge_demo(c_ptr, BLOCK: tl.constexpr):
    tl.store(c_ptr, SPARE + tl.load(c_ptr) * WEIGHT)
"""
MERGE_SIGNATURE = "kernel: _merge_demo\nnum_warps: 2\narguments: {c_ptr: '*fp32:16'}\nconstants: {BLOCK: 32}\n"
COMPANIONS = "constants: {BLOCK: 64}\ncompanions: {_merge_demo: {BLOCK: 64}}\n"


# Answers as kernels.compiler does: shared memory grows with BLOCK and stages, which change the code of a loop, and of a
# page of two, alone.
FAKE_COMPILER = """\
#!{python} -IS
import hashlib, json, re, sys

def answer(request):
    source = re.sub("SPARE = .*", "", request["source"].replace(request["kernel"], "kernel"))
    block = request["constants"]["BLOCK"]
    warps, stages = request["options"]["num_warps"], request["options"]["num_stages"]
    if "absent(" in source:
        return {{"error": "absent is not defined", "error_kind": "CompilationError"}}
    if "static_assert" in source:
        return {{"error": "static assertion", "error_kind": "CompileTimeAssertionFailure"}}
    staged = "tl.dot" in source or request["constants"].get("PAGE") == 2
    code = json.dumps([source, block, warps, stages if staged else 0, request["arch"]])
    return {{
        "registers": 64, "spill_bytes": 8 if warps == 1 else 0, "stack_bytes": 8,
        "shared_bytes": block * stages * 200 if "tl.dot" in source else 0, "num_warps": warps, "mma": 1,
        "code_sha256": hashlib.sha256(code.encode()).hexdigest(),
    }}

_, requests = json.load(sys.stdin)
with open(int(sys.argv[-1]), "w") as answers:
    for number, request in enumerate(requests):
        print(json.dumps([number, answer(request)]), file=answers)
"""


@dataclass(frozen=True)
class Config:
    """The least that a configuration must have."""

    constants: dict[str, int] = field(default_factory=lambda: {"BLOCK": 64})
    num_warps: int = 4
    num_stages: int = 2


def fake_toolchain(folder: Path) -> Toolchain:
    """A compiler that answers at once and by rule; for tests of what is made of the answers."""
    python = folder / "fake-python"
    python.write_text(FAKE_COMPILER.format(python=sys.executable))
    python.chmod(0o755)
    return Toolchain(python, "0.fake")


def write_signature(folder: Path, text: str = SIGNATURE) -> Path:
    """A folder that holds the demo kernel's signature file."""
    (folder / "_demo_kernel.yaml").write_text(text)
    return folder
