"""What the client knows of its own health: lateness of its loop and the processor time it took, second by second."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

TICK_S = 0.01
SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """The client's health between two instants: lateness in wall ms, share of one core used by process and reader."""

    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    cpu_share: float
    reader_cpu_share: float
    cpu_s: float


class LoopMeter:
    """Measures, inside an event loop, how late a timer of 10 ms fires."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due_ns = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.at_ns, self.lag_ns = array("q"), array("q")
        self.cpu_at_ns, self.process_ns, self.thread_ns = array("q"), array("q"), array("q")

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts measuring; call from the loop's own thread."""
        self._loop = loop
        self._schedule()
        self._sample_cpu()

    def detach(self) -> None:
        """Ends measuring; call from the loop's own thread."""
        self._loop = None
        for timer in self._timers.values():
            timer.cancel()

    def health(self, start_ns: int, end_ns: int) -> Health:
        """Figures of the interval; NaN where nothing was measured in it."""
        at, lag = _copies(self.at_ns, self.lag_ns)
        lags = lag[(at >= start_ns) & (at <= end_ns)] / 1e6
        p50, p99, top = np.percentile(lags, [50, 99, 100]) if len(lags) else (np.nan,) * 3
        process, thread, wall = self._cpu(start_ns, end_ns)
        return Health(float(p50), float(p99), float(top), process / wall, thread / wall, process / 1e9)

    def _cpu(self, start_ns: int, end_ns: int) -> tuple[float, float, float]:
        at, process, thread = _copies(self.cpu_at_ns, self.process_ns, self.thread_ns)
        inside = np.flatnonzero((at >= start_ns) & (at <= end_ns))
        if len(inside) < 2:
            return np.nan, np.nan, np.nan
        first, last = inside[0], inside[-1]
        wall = float(at[last] - at[first])
        return float(process[last] - process[first]), float(thread[last] - thread[first]), wall

    def _schedule(self) -> None:
        if self._loop is not None:
            self._due_ns = time.monotonic_ns() + int(TICK_S * 1e9)
            self._timers["tick"] = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = time.monotonic_ns()
        self.at_ns.append(now)
        self.lag_ns.append(max(0, now - self._due_ns))
        self._schedule()

    def _sample_cpu(self) -> None:
        self.cpu_at_ns.append(time.monotonic_ns())
        self.process_ns.append(time.process_time_ns())
        self.thread_ns.append(time.thread_time_ns())
        if self._loop is not None:
            self._timers["cpu"] = self._loop.call_later(SAMPLE_S, self._sample_cpu)


def _copies(*series: array[int]) -> list[npt.NDArray[np.int64]]:
    # Slices, not views: an array whose memory is lent cannot grow, and the reader thread goes on appending.
    taken = [one[:] for one in series]
    length = min(map(len, taken))
    return [np.array(one[:length], np.int64) for one in taken]


def health_json(health: Health) -> dict[str, Any]:
    """Plain data with NaN as null."""
    values = {name: getattr(health, name) for name in Health.__slots__}
    return {k: (None if np.isnan(v) else round(v, 4)) for k, v in values.items()}
