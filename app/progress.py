"""Progress of long work: what is done, how far it is, what is left; a live bar on a terminal, dated lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

REPEAT_AFTER_S = 10.0


class _Display(Protocol):
    def open(self) -> None: ...
    def show(self, text: str, done: float, left: str) -> None: ...
    def say(self, text: str) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Reports steps of a work of `total_starts` units; a context manager, so the terminal is restored whatever happens.

    quiet asks for plain lines on a terminal too. `step` may be called as often as wanted: lines are thinned out.
    """

    def __init__(
        self,
        total_starts: int,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        unit: str = "starts",
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime] = datetime.now,
    ) -> None:
        stream = sys.stderr if stream is None else stream
        self._total, self._done, self._clock, self._began = total_starts, 0.0, clock, clock()
        # Units finished since the first were counted; what is done again is work once more. None: none counted yet.
        self._gained: float | None = None
        self._display: _Display = _Lines(total_starts, unit, stream, clock, today)
        if stream.isatty() and not quiet:
            self._display = _Live(total_starts, unit, stream)

    def __enter__(self) -> Self:
        self._display.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._display.close()

    def step(self, text: str, *, done: float | None = None, eta_s: float | None = None) -> None:
        """Says what is being done; done counts finished units, eta_s is what is left (worked out when not given)."""
        if done is not None:
            self._count(done)
        left = self._left_s() if eta_s is None else eta_s
        self._display.show(text, self._done, "" if left is None else f"about {spoken(left)} left")

    def say(self, text: str) -> None:
        """A line that stays, such as a voided block or the path of a report."""
        self._display.say(text)

    def _count(self, done: float) -> None:
        if self._gained is None:
            # What an earlier sitting had finished took none of this one's time.
            self._gained, self._began = 0.0, self._clock()
        else:
            self._gained += max(0.0, done - self._done)
        self._done = done

    def _left_s(self) -> float | None:
        # When all are measured what is left may be to do some again, or nothing.
        if not self._gained or self._done >= self._total:
            return None
        return (self._clock() - self._began) / self._gained * (self._total - self._done)


class _Live:
    def __init__(self, total: int, unit: str, stream: TextIO) -> None:
        left, what = TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), BarColumn(24), MofNCompleteColumn(), TextColumn(unit), left, what)
        self._bar = Bar(*columns, console=Console(file=stream), transient=True)
        self._task = self._bar.add_task("", total=total, left="")

    def open(self) -> None:
        self._bar.start()

    def show(self, text: str, done: float, left: str) -> None:
        self._bar.update(self._task, description=text, completed=done, left=left)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


class _Lines:
    def __init__(
        self, total: int, unit: str, stream: TextIO, clock: Callable[[], float], today: Callable[[], datetime]
    ) -> None:
        self._total, self._unit, self._stream, self._clock, self._today = total, unit, stream, clock, today
        self._last, self._last_at = ("", -1.0), clock()

    def open(self) -> None:
        pass

    def show(self, text: str, done: float, left: str) -> None:
        if (text, done) == self._last and self._clock() - self._last_at < REPEAT_AFTER_S:
            return
        self._last, self._last_at = (text, done), self._clock()
        self.say("  ".join(filter(None, [f"{done:g}/{self._total} {self._unit}", text, left])))

    def say(self, text: str) -> None:
        self._stream.write(f"{self._today():%Y-%m-%d %H:%M:%S}  {text}\n")
        self._stream.flush()

    def close(self) -> None:
        pass


def spoken(seconds: float) -> str:
    """A duration for people: 40 s, 12 min, 3 h 05 min, 2 d 4 h."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
