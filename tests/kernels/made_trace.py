"""Traces as the torch profiler writes them, with the figures of real launches on an H200 (torch 2.11, Triton 3.6)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

H200 = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0}
STOCK = "_tiled_sparse_decode_kernel"


def launch(
    name: str = STOCK,
    dur: float = 47.872,
    grid: Iterable[int] = (8, 16, 1),
    block: Iterable[int] = (256, 1, 1),
    registers: int = 255,
    shared: int = 16384,
) -> dict[str, Any]:
    """One launch; by default SGLang's stock kernel with (32,8,2) at batch 8 and 16 heads."""
    args = {
        "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 42, "registers per thread": registers,
        "shared memory": shared, "blocks per SM": 0.969697, "warps per SM": 7.757576, "grid": list(grid),
        "block": list(block), "est. achieved occupancy %": 12,
    }  # fmt: skip
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": 5122413164696.854,
        "dur": dur,
        "args": args,
    }


def write_trace(path: Path, *events: dict[str, Any], device: dict[str, Any] | None = H200) -> Path:
    """A trace of these events between others that have nothing to do with kernels; packed when the name ends in .gz."""
    noise = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.5, "dur": 2, "args": {"Input Dims": [[1, 2], []]}}
    head = {"schemaVersion": 1, "deviceProperties": [device] if device else []}
    text = json.dumps({**head, "traceEvents": [noise, *events, noise], "traceName": "t"})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
