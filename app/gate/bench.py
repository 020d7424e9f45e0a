"""Benchmarks variants' kernels alone on this GPU, beside their peers, each patched as an image would hold it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from app import arguments
from app.environment import ROOT
from app.errors import LoadError, NotReadyError
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants


def bench_kernels(variants: str, out: str, flashmla: str, sweep: bool) -> None:
    """Writes rows and conditions to `out`; flashmla names sglang-kernel's flashmla_ops library for the CUDA peer.

    NotReadyError without torch on a CUDA GPU: a benchmark of anything else would say nothing.
    """
    names = arguments.names(variants, "variants")
    _require_gpu()
    with tempfile.TemporaryDirectory(prefix="decode-ab-") as folder:
        placed = place_kernels(load_variants(), names, fetch_base(), Path(folder))
        command = [sys.executable, "-m", "kernels.bench", "--out", out]
        command += [part for name in names for part in ("--variant", f"{name}={placed[name].path}")]
        command += ["--flashmla", flashmla] if flashmla else []
        command += ["--sweep"] if sweep else []
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            raise LoadError(f"the benchmark ended early; the rows it measured are in {out}")


def _require_gpu() -> None:
    if importlib.util.find_spec("torch") is None:
        raise NotReadyError("no torch here; install a CUDA build: pip install -r requirements/torch.txt")
    import torch

    if not torch.cuda.is_available():
        raise NotReadyError("no CUDA GPU here; the benchmark times real launches and nothing else")
