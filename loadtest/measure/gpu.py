"""The GPU beside the load, where there is one: clocks, power, temperature and throttle reasons once a second."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gevent
from gevent import subprocess

FIELDS = "index,clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"
# Bits of nvmlClocksEventReasons that mean the card was held back by heat or by its supply. The software power cap
# (0x4) is how a card at full load normally runs: it is recorded and judged by the clocks, not here.
THROTTLE = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading of one card."""

    at_ns: int
    index: int
    sm_mhz: float
    memory_mhz: float
    power_w: float
    temperature_c: float
    reasons: int


class GpuTelemetry:
    """Reads nvidia-smi's own loop; without that program there is nothing to read, and `samples` stays empty."""

    def __init__(self) -> None:
        self.samples: list[GpuSample] = []
        self._process: Any = None
        self._reader: gevent.Greenlet | None = None

    def start(self) -> None:
        """Starts reading."""
        program = shutil.which("nvidia-smi")
        if program is None:
            return
        argv = [program, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", "-lms", "1000"]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = gevent.spawn(self._read)

    def stop(self) -> None:
        """Ends reading."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(timeout=2)
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            sample = parse_line(line, time.monotonic_ns())
            if sample is not None:
                self.samples.append(sample)


def parse_line(line: str, at_ns: int) -> GpuSample | None:
    """A reading out of nvidia-smi's CSV; None for a line that is none, such as a message of the driver."""
    parts = [part.strip() for part in line.split(",")]
    try:
        index, sm, memory, power, temperature, reasons = parts
        clocks, rest = (_number(sm), _number(memory)), (_number(power), _number(temperature))
        return GpuSample(at_ns, int(index), *clocks, *rest, int(reasons, 16))
    except ValueError:
        return None


def check_gpus(samples: Sequence[GpuSample], begin_ns: int, end_ns: int) -> list[str]:
    """Throttling inside a window, by card and reason."""
    found = {
        (s.index, name)
        for s in samples
        for bit, name in THROTTLE.items()
        if begin_ns <= s.at_ns <= end_ns and s.reasons & bit
    }
    return [f"GPU {index} throttled, {name}" for index, name in sorted(found)]


def gpu_json(sample: GpuSample) -> dict[str, Any]:
    """A reading of load.json."""
    return asdict(sample)


def gpu_from_json(data: dict[str, Any]) -> GpuSample:
    """The reading a load.json holds."""
    return GpuSample(**data)


def _number(text: str) -> float:
    return float("nan") if text in ("[N/A]", "N/A") else float(text)
