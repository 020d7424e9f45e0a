"""GPU telemetry through a load: clocks, power, temperature and throttle reasons by NVML, where a GPU is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

INTERVAL_S = 1.0
# NVML's reasons that change what a kernel can do; idle and application clocks are not among them.
HARMFUL = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
# An RTX PRO 6000 runs at its power limit by design: that alone is recorded, not held against a block.
VOIDING = 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment. at_ns: CLOCK_MONOTONIC; clocks in MHz, power in W, temperature in deg C."""

    at_ns: int
    gpu: int
    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    throttle: int


Source = Callable[[], Sequence[Reading]]


class Telemetry:
    """Reads a source once a second in a thread of its own, from entering to leaving."""

    def __init__(self, source: Source | None, interval_s: float = INTERVAL_S) -> None:
        self._source, self._interval_s = source, interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="telemetry", daemon=True)
        self.readings: list[Reading] = []
        self.fault = "" if source else "no NVML on this host"

    def __enter__(self) -> Self:
        if self._source is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def to_json(self) -> dict[str, Any]:
        """Plain data for telemetry.json."""
        return {"schema": 1, "fault": self.fault, "readings": [asdict(r) for r in self.readings]}

    def void_reasons(self) -> tuple[str, ...]:
        """Why this load may not count: a GPU was throttled by heat or by the board."""
        seen = {(r.gpu, bit) for r in self.readings for bit in HARMFUL if r.throttle & bit & VOIDING}
        return tuple(f"GPU {gpu} throttled: {HARMFUL[bit]}" for gpu, bit in sorted(seen))

    def _read(self) -> None:
        while not self._ended.wait(self._interval_s):
            if self._source is None:
                return
            try:
                self.readings.extend(self._source())
            except Exception as e:  # NVML raises many kinds; none may end a load
                self.fault = f"{type(e).__name__}: {e}"


def nvml() -> Source | None:
    """A source for every GPU of this host, None where there is no NVML."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def read() -> list[Reading]:
        return [_reading(pynvml, index, handle) for index, handle in enumerate(handles)]

    return read


def _reading(library: Any, index: int, handle: Any) -> Reading:
    return Reading(
        at_ns=time.monotonic_ns(),
        gpu=index,
        sm_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
        memory_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM),
        power_w=library.nvmlDeviceGetPowerUsage(handle) / 1000,
        temperature_c=library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
        throttle=library.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    )
