"""Conditions of a start that must be equal inside a block and may differ between blocks: host, card, driver, clocks."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from app.errors import DriverMissingError, NotReadyError
from app.gpus import query

GPU_FIELDS = ("name", "driver_version", "clocks.max.sm", "power.limit", "persistence_mode")
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def conditions() -> dict[str, str]:
    """What this host says of itself; one `gpu.<field>` entry per NVML field where nvidia-smi is there."""
    found = {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        # Rented machines are often equal in all of the above; this tells two of them, or a restarted one, apart.
        "boot": BOOT_ID.read_text(encoding="ascii").strip()[:8],
    }
    # Which of the cards below are the campaign's, where it does not have them all.
    chosen = {"gpu.visible": VISIBLE, "gpu.order": ORDER}
    visible = {field: os.environ[name] for field, name in chosen.items() if name in os.environ}
    return found | visible | {f"gpu.{field}": value for field, value in _gpu().items()}


def said_once(value: str) -> str:
    """What all cards of a host say alike, which older campaigns hold once for each of them."""
    cards = value.split(", ")
    return cards[0] if len(set(cards)) == 1 else value


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Hardware"))]
    return names[0] if names else platform.machine()


def _gpu() -> dict[str, str]:
    try:
        cards = query(GPU_FIELDS)
    except DriverMissingError:
        return {}
    except NotReadyError as e:
        return {"state": str(e)}
    # A host of fewer cards is no other clock policy.
    said = {field: said_once(", ".join(card[field] for card in cards)) for field in GPU_FIELDS}
    return {"count": str(len(cards)), **said}
