"""Launches of one kernel in a profiler's Kineto trace, read as a stream: memory does not grow with the file."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ijson

Axes = tuple[int, int, int]
# More of either is no trace of a server; without these bounds a hostile file could fill the memory.
LIMIT_KINDS = 10_000
LIMIT_EVENT_BYTES = 8 * 1024 * 1024
LIMIT_DEPTH = 2000
_SHOWN_CHARACTERS = 100
# What ranks exchange results with: such a kernel lasts until the other ranks have come, so its time is mostly waiting.
_EXCHANGE = re.compile(r"nccl|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)
# Kinds of event whose process is one of the host's; a kernel's is the number of its GPU.
_HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")


class TraceError(ValueError):
    """A trace cannot be read."""


class AbsentError(TraceError):
    """A whole trace that holds no launch of the kernel."""


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


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds one kernel's launches: GPU time of all kernels, graphs launched, processes that were recorded.

    working_us: time of all kernels but those that exchange results between ranks, where one waits for the other;
    exchange_us: theirs.
    """

    working_us: float
    exchange_us: float
    graphs: int
    processes: frozenset[int]


def read_device(path: Path) -> Device | None:
    """The first GPU that a trace's head names; None where it names none before its events."""
    with _whole(path), _opened(path) as file:
        facts: dict[str, Any] = {}
        for prefix, kind, value in ijson.parse(_Metered(file), use_float=True):
            if prefix.startswith(("traceEvents", "item")) or (prefix, kind) == ("deviceProperties.item", "end_map"):
                break
            if prefix.removeprefix("deviceProperties.item.") in ("name", "computeMajor", "computeMinor"):
                facts[prefix.removeprefix("deviceProperties.item.")] = value
    if "computeMajor" not in facts or "computeMinor" not in facts:
        return None
    try:
        return Device(str(facts.get("name", "")), 10 * int(facts["computeMajor"]) + int(facts["computeMinor"]))
    except (TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{path} names a GPU of no compute capability ({error}); record it again") from error


def read_launches(path: Path, kernel: str) -> list[LaunchGroup]:
    """The launches of `kernel` in a trace (.json or .json.gz), grouped by kind, those with most GPU time first.

    TraceError: not a trace, cut off, or a launch without grid, block, registers or shared memory; AbsentError: no
    launch of that name (the kernels it has are listed).
    """
    groups: dict[Launch, LaunchGroup] = {}
    others: dict[str, float] = {}
    wanted = _name_of(kernel)
    for event in _kernel_events(path):
        name, took_us = str(event.get("name", "")), _duration_us(path, event)
        if wanted.fullmatch(name) is None:
            # A few names serve the message; a trace may have very many, and long ones.
            name = name[:_SHOWN_CHARACTERS]
            if name in others or len(others) < 1000:
                others[name] = others.get(name, 0.0) + took_us
            continue
        launch = _launch(path, event)
        if launch not in groups and len(groups) == LIMIT_KINDS:
            raise TraceError(f"{path} has more than {LIMIT_KINDS} kinds of launch of {kernel}; that is no trace of it")
        old = groups.get(launch, LaunchGroup(launch, 0, 0.0, took_us, took_us))
        groups[launch] = LaunchGroup(
            launch, old.count + 1, old.total_us + took_us, min(old.least_us, took_us), max(old.most_us, took_us)
        )
    if not groups:
        most = sorted(others, key=lambda name: -others[name])[:5]
        raise AbsentError(
            f"{path} has no launch of {kernel}; most time is in {', '.join(most) or 'no GPU kernel at all'}"
        )
    return sorted(groups.values(), key=lambda group: -group.total_us)


def read_setting(path: Path) -> Setting:
    """All kernels' time and the host's side of a trace; TraceError as `read_launches` has it, but for names."""
    working_us, exchange_us, graphs, processes = 0.0, 0.0, 0, set[int]()
    for event in _events(path):
        kind = event.get("cat")
        if kind == "kernel":
            if _EXCHANGE.search(str(event.get("name", ""))):
                exchange_us += _duration_us(path, event)
            else:
                working_us += _duration_us(path, event)
        elif kind in _HOST:
            graphs += event.get("name") == "cudaGraphLaunch"
            if isinstance(number := event.get("pid"), int) and len(processes) < LIMIT_KINDS:
                processes.add(number)
    return Setting(working_us, exchange_us, graphs, frozenset(processes))


def _name_of(kernel: str) -> re.Pattern[str]:
    # Older Tritons append their specialisation: kernel_0d1d2c3de. One of C++ is told whole: void space::kernel<...>(...
    name, space = re.escape(kernel), r"(\w+|\(anonymous namespace\))::"
    return re.compile(rf"{name}(_\d[\dcde]*)?|(void )?({space})*{name}[<(].*", re.DOTALL)


def _kernel_events(path: Path) -> Iterator[Mapping[str, Any]]:
    return (event for event in _events(path) if event.get("cat") == "kernel")


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    read = 0
    with _whole(path), _opened(path) as file:
        metered = _Metered(file)
        for event in ijson.items(metered, _events_at(file), use_float=True):
            read += 1
            metered.event_read()
            if isinstance(event, dict):
                yield event
    if not read:
        raise TraceError(f"{path} has no traceEvents; give a trace as the torch profiler exports it")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    try:
        yield
    except TraceError:
        raise
    # ValueError: numbers of thousands of digits, and text that is not UTF-8.
    except (ijson.JSONError, EOFError, ValueError, OverflowError, zlib.error) as error:
        # The parser draws an arrow under the place, on lines of its own.
        said = " ".join(str(error).split())
        raise TraceError(f"{path} is no whole JSON trace ({said}); record it again") from error
    except OSError as error:
        raise TraceError(f"cannot read trace {path}: {error}") from error


class _Metered:
    """A file that ends the reading when one event does not end, or nests so deep that the parser's time is its square.

    Depth is taken from the brackets, those inside texts too: an event that is read sets the count back.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file, self._size, self._depth = file, 0, 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._size += len(data)
        self._depth += data.count(b"[") + data.count(b"{") - data.count(b"]") - data.count(b"}")
        if self._size > LIMIT_EVENT_BYTES:
            raise ValueError(f"{LIMIT_EVENT_BYTES // 2**20} MiB without the end of an event")
        if self._depth > LIMIT_DEPTH:
            raise ValueError(f"nested deeper than {LIMIT_DEPTH} levels")
        return data

    def event_read(self) -> None:
        """Begins the count anew."""
        self._size = self._depth = 0


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


def _duration_us(path: Path, event: Mapping[str, Any]) -> float:
    try:
        took_us = float(event.get("dur", 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{path}: an event's duration is no number ({error}); record it again") from error
    if not 0 <= took_us < math.inf:
        raise TraceError(f"{path}: an event lasts {took_us} us; record it again")
    return took_us


def _launch(path: Path, event: Mapping[str, Any]) -> Launch:
    facts = event.get("args") or {}
    try:
        return Launch(
            _axes(facts["grid"]), _axes(facts["block"]), int(facts["registers per thread"]), int(facts["shared memory"])
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TraceError(
            f"{path}: a launch of {event.get('name')} lacks {error}; record it with CUDA activities"
        ) from error


def _axes(values: Any) -> Axes:
    x, y, z = (int(value) for value in values)
    return x, y, z
