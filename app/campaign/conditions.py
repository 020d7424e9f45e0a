"""Conditions of a start that must be equal inside a block and may differ between blocks: host, card, driver, clocks."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

GPU_FIELDS = ("name", "driver_version", "clocks.max.sm", "power.limit", "persistence_mode")


def conditions() -> dict[str, str]:
    """What this host says of itself; one `gpu.<field>` entry per NVML field where nvidia-smi is there."""
    found = {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
    }
    return found | {f"gpu.{field}": value for field, value in _gpu().items()}


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Hardware"))]
    return names[0] if names else platform.machine()


def _gpu() -> dict[str, str]:
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if answer.returncode != 0:
        return {"state": answer.stderr.strip() or answer.stdout.strip()}
    columns = zip(*([v.strip() for v in line.split(",")] for line in answer.stdout.strip().splitlines()), strict=True)
    return {field: ", ".join(values) for field, values in zip(GPU_FIELDS, columns, strict=True)}
