"""What the experiments' kernels need on sm_90 and sm_120, compiled with no GPU: python -m kernels.experiment_code."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernels.geometry import default_geometry
from kernels.resources import Resources, compile_all
from kernels.signature import Argument, Signature, load_signature
from kernels.toolchain import Toolchain, toolchain_of

FOLDER = Path(__file__).parent
PRODUCT = "_sparse_mla_decode_kernel"
KERNELS = {"_stream_kernel": "stream_k.py", "_one_loop_kernel": "one_loop.py"}
# Arguments that only the experiments have, in which the launch fixes no number.
_DEALT = tuple(Argument(name, "i32") for name in ("batch", "workers", "tiles", "grain"))
_MERGED_APART = {"FUSED": False, "EARLY": True, "CHAINED": True}


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration, as an autotune list would have it."""

    constants: dict[str, int | bool | str] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 2

    def __str__(self) -> str:
        return "/".join(map(str, (self.constants["BLOCK_T"], self.num_warps, self.num_stages)))


def source(kernel: str) -> str:
    """The kernel's module behind the product's, as one text that needs neither torch nor this package."""
    text = (FOLDER / KERNELS[kernel]).read_text()
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join([(FOLDER / "sparse_mla_decode.py").read_text(), *lines])


def signature(kernel: str, live: bool = False) -> Signature:
    """How an experiment is launched: as the product's kernel is, but for what it alone takes. live: see Ranges."""
    product = load_signature(PRODUCT)
    ways = product.uses if kernel == "_stream_kernel" else product.uses[:1]
    first, *others = (_experiment(kernel, way, live) for way in ways)
    return replace(first, others=tuple(others))


def _experiment(kernel: str, way: Signature, live: bool) -> Signature:
    known = {argument.name: argument for argument in (*way.arguments, *_DEALT)}
    names = [name for name in _parameters(kernel) if name in known]
    constants = dict(way.constants) | (
        {"LIVE": live, "ROWS": 128 if live else 1} if "LIVE" in _parameters(kernel) else {}
    )
    arguments = tuple(known[name] for name in names)
    return replace(way, kernel=kernel, arguments=arguments, constants=constants, others=(), table=None, companions={})


def _parameters(kernel: str) -> list[str]:
    tree = ast.parse((FOLDER / KERNELS[kernel]).read_text())
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == kernel)
    return [argument.arg for argument in function.args.args]


def resources(
    kernel: str, configs: Sequence[Config], arch: int, live: bool = False, toolchain: Toolchain | None = None
) -> list[Resources]:
    """Every configuration compiled in every way the experiment is launched."""
    return compile_all(
        source(kernel), kernel, signature(kernel, live), configs, arch, default_geometry(), toolchain or toolchain_of()
    )


def config(block_t: int, warps: int, stages: int, registers: int = 0, fused: bool = False) -> Config:
    """One configuration; registers 0: the compiler's choice; fused: the last to arrive merges."""
    constants: dict[str, int | bool | str] = {"BLOCK_T": block_t}
    constants |= {} if fused else _MERGED_APART
    return Config(constants | ({"maxnreg": registers} if registers else {}), warps, stages)


# Of each target: what is raced there on a GPU, or what the product's table holds for it.
RACED = {
    90: (
        config(32, 4, 1), config(32, 4, 2, 168), config(32, 4, 3), config(64, 4, 2),
        config(32, 4, 3, fused=True), config(64, 4, 2, fused=True),
    ),
    120: (config(16, 4, 2), config(32, 4, 1), config(32, 4, 1, fused=True)),
}  # fmt: skip


def main(argv: list[str] | None = None) -> None:
    """Print one line for each kernel, configuration and way of launching it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, nargs="+", choices=[*RACED], default=[*RACED])
    parser.add_argument("--triton", help="version of Triton that compiles; without it, the installed one")
    options = parser.parse_args(argv)
    chain = toolchain_of(options.triton)
    print("arch,kernel,config,merge,use,registers,spill_bytes,shared_bytes,ctas,error")
    for arch in options.arch:
        for kernel, live in (("_stream_kernel", False), ("_stream_kernel", True), ("_one_loop_kernel", False)):
            for found in resources(kernel, RACED[arch], arch, live, chain):
                merge = "fused" if found.config.constants.get("FUSED", True) else "apart"
                use = f"{found.use}, live" if live else found.use
                facts = (found.registers, found.spill_bytes, found.shared_bytes, found.ctas_per_sm, found.error or "")
                print(arch, kernel, found.config, merge, f'"{use}"', *facts, sep=",", flush=True)


if __name__ == "__main__":
    main()
