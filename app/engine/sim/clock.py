"""Engine time: seconds that pass time_scale times faster than the wall clock, and fine timers on it."""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from app.errors import NotReadyError

NS_PER_S = 1_000_000_000
_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_PR_SET_PDEATHSIG = 1

Callback = Callable[[float], None]


class Clock(Protocol):
    """What schedulers need of time; `at` calls back with the time that was asked for, never with the later moment."""

    def now_s(self) -> float:
        """Engine seconds since the clock began."""
        ...

    def at(self, when_s: float, callback: Callback) -> None:
        """Calls callback(when_s) at engine time when_s, or soon if that is past."""
        ...


class WallClock:
    """Engine time on CLOCK_MONOTONIC. `fd` is to be watched by the event loop, which calls `fire` when it is readable.

    A timerfd instead of the loop's own timers: those are rounded to whole milliseconds, and a step at time_scale 20
    lasts one.
    """

    def __init__(self, time_scale: float = 1.0) -> None:
        self.time_scale = time_scale
        self.origin_ns = time.monotonic_ns()
        self._heap: list[tuple[int, int, float, Callback]] = []
        self._order = itertools.count()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._armed_ns = 0
        self._afterwards: list[Callable[[], None]] = []
        self.fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _CLOEXEC_NONBLOCK)
        if self.fd < 0:
            raise NotReadyError(f"timerfd_create: {os.strerror(ctypes.get_errno())}; the simulated engine needs Linux")

    def now_s(self) -> float:
        """Engine seconds since the clock began."""
        return self.engine_s(time.monotonic_ns())

    def engine_s(self, monotonic_ns: int) -> float:
        """Engine time of a CLOCK_MONOTONIC stamp."""
        return (monotonic_ns - self.origin_ns) * self.time_scale / NS_PER_S

    def monotonic_ns(self, engine_s: float) -> int:
        """CLOCK_MONOTONIC stamp of an engine time."""
        return self.origin_ns + round(engine_s * NS_PER_S / self.time_scale)

    def at(self, when_s: float, callback: Callback) -> None:
        """Calls callback(when_s) at engine time when_s, or soon if that is past."""
        heapq.heappush(self._heap, (self.monotonic_ns(when_s), next(self._order), when_s, callback))
        self._arm()

    def afterwards(self, work: Callable[[], None]) -> None:
        """Runs work once all that is due now has run: what can wait must not delay tokens of the same moment."""
        self._afterwards.append(work)

    def fire(self) -> None:
        """Runs what is due; what a callback plans for the past waits for the next round: sockets get their turn."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return
        self._armed_ns = 0
        now = time.monotonic_ns()
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap))
        for _, _, when_s, callback in due:
            callback(when_s)
        later, self._afterwards = self._afterwards, []
        for work in later:
            work()
        self._arm()

    def _arm(self) -> None:
        if not self._heap or 0 < self._armed_ns <= self._heap[0][0]:
            return
        self._armed_ns = max(1, self._heap[0][0])
        spec = (ctypes.c_long * 4)(0, 0, self._armed_ns // NS_PER_S, self._armed_ns % NS_PER_S)
        self._libc.timerfd_settime(self.fd, _ABSOLUTE, spec, None)


class VirtualClock:
    """Engine time that jumps from one timer to the next: a day of serving in seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._heap: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        """Engine seconds since the clock began."""
        return self._now_s

    def at(self, when_s: float, callback: Callback) -> None:
        """Calls callback(when_s) when the clock gets there."""
        heapq.heappush(self._heap, (when_s, next(self._order), callback))

    def run_until(self, end_s: float) -> None:
        """Runs every timer up to end_s."""
        while self._heap and self._heap[0][0] <= end_s:
            when_s, _, callback = heapq.heappop(self._heap)
            self._now_s = max(self._now_s, when_s)
            callback(when_s)
        self._now_s = end_s


def die_with_parent() -> None:
    """Asks the kernel to end this process with SIGTERM when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
