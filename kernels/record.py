"""Launching a kernel file on this machine's GPU under the torch profiler: python -m kernels.record FILE TRACE."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What SGLang imports from the kernel's file, whatever the kernel in it is.
ENTRY = "flash_mla_sparse_decode_triton"
WARM, RECORDED = 3, 10


def record(file: Path, trace: Path, batch: int, heads: int, topk: int, extra: int) -> None:
    """Call the file's entry point on random inputs and write the launches of ten calls to `trace` as Kineto JSON."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from kernels.cases import Case, make_inputs

    case = Case(batch, heads, topk, extra, pool=4 * max(topk, extra), lengths="full", sink="normal")
    x = make_inputs(case, "cuda")
    entry = _entry(file)

    def call() -> None:
        entry(
            x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, 512, 512**-0.5,
            x.extra_k_cache, x.extra_indices, x.extra_topk_length,
        )  # fmt: skip

    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(RECORDED):
            call()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(trace))


def _entry(file: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("recorded_kernel", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    entry: Callable[..., Any] = getattr(module, ENTRY)
    return entry


def main() -> None:
    """Record one trace as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("trace", type=Path)
    for name, default in (("batch", 96), ("heads", 16), ("topk", 128), ("extra", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    record(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
