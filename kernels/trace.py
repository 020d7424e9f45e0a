"""Launches of one kernel in a profiler's Kineto trace, read as a stream: memory does not grow with the file."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ijson

Axes = tuple[int, int, int]


class TraceError(ValueError):
    """A trace cannot be read, or holds no launch of the kernel."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel was launched: grid in CTAs, block in threads, registers a thread, shared memory of one CTA."""

    grid: Axes
    block: Axes
    registers: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    """All launches of one kind in a trace, with their GPU time in microseconds."""

    launch: Launch
    count: int
    total_us: float
    least_us: float
    most_us: float

    @property
    def mean_us(self) -> float:
        """GPU time of one launch."""
        return self.total_us / self.count


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU that a trace was recorded on; arch as in 120 for compute capability 12.0."""

    name: str
    arch: int


def read_device(path: Path) -> Device | None:
    """The first GPU that a trace's head names; None where it names none before its events."""
    with _whole(path), _opened(path) as file:
        facts: dict[str, Any] = {}
        for prefix, kind, value in ijson.parse(file, use_float=True):
            if prefix.startswith(("traceEvents", "item")) or (prefix, kind) == ("deviceProperties.item", "end_map"):
                break
            if prefix.startswith("deviceProperties.item."):
                facts[prefix.removeprefix("deviceProperties.item.")] = value
    if "computeMajor" not in facts or "computeMinor" not in facts:
        return None
    return Device(str(facts.get("name", "")), 10 * int(facts["computeMajor"]) + int(facts["computeMinor"]))


def read_launches(path: Path, kernel: str) -> list[LaunchGroup]:
    """The launches of `kernel` in a trace (.json or .json.gz), grouped by kind, those with most GPU time first.

    TraceError: not a trace, cut off, no launch of that name (the kernels it has are listed), or a launch without
    grid, block, registers or shared memory.
    """
    groups: dict[Launch, LaunchGroup] = {}
    others: dict[str, float] = {}
    wanted = _name_of(kernel)
    for event in _kernel_events(path):
        name, took_us = str(event.get("name", "")), float(event.get("dur", 0))
        if wanted.fullmatch(name) is None:
            # A few names serve the message; a trace may have very many.
            if name in others or len(others) < 1000:
                others[name] = others.get(name, 0.0) + took_us
            continue
        launch = _launch(path, event)
        old = groups.get(launch, LaunchGroup(launch, 0, 0.0, took_us, took_us))
        groups[launch] = LaunchGroup(
            launch, old.count + 1, old.total_us + took_us, min(old.least_us, took_us), max(old.most_us, took_us)
        )
    if not groups:
        most = sorted(others, key=lambda name: -others[name])[:5]
        raise TraceError(
            f"{path} has no launch of {kernel}; most time is in {', '.join(most) or 'no GPU kernel at all'}"
        )
    return sorted(groups.values(), key=lambda group: -group.total_us)


def _name_of(kernel: str) -> re.Pattern[str]:
    # Older Tritons append their specialisation: kernel_0d1d2c3de.
    return re.compile(rf"{re.escape(kernel)}(_(\d+[cde]*)+)?")


def _kernel_events(path: Path) -> Iterator[Mapping[str, Any]]:
    read = 0
    with _whole(path), _opened(path) as file:
        for event in ijson.items(file, _events_at(file), use_float=True):
            read += 1
            if isinstance(event, dict) and event.get("cat") == "kernel":
                yield event
    if not read:
        raise TraceError(f"{path} has no traceEvents; give a trace as the torch profiler exports it")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except (ijson.JSONError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path} is no whole JSON trace ({error}); record it again") from error
    except OSError as error:
        raise TraceError(f"cannot read trace {path}: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        with gzip.open(path, "rb") as unpacked:
            yield unpacked
    else:
        with path.open("rb") as file:
            yield file


def _events_at(file: BinaryIO | gzip.GzipFile) -> str:
    # A Chrome trace is either the list of events or a mapping with traceEvents.
    start = file.read(4096).lstrip()
    file.seek(0)
    return "item" if start.startswith(b"[") else "traceEvents.item"


def _launch(path: Path, event: Mapping[str, Any]) -> Launch:
    facts = event.get("args") or {}
    try:
        return Launch(
            _axes(facts["grid"]), _axes(facts["block"]), int(facts["registers per thread"]), int(facts["shared memory"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(
            f"{path}: a launch of {event.get('name')} lacks {error}; record it with CUDA activities"
        ) from error


def _axes(values: Any) -> Axes:
    x, y, z = (int(value) for value in values)
    return x, y, z
