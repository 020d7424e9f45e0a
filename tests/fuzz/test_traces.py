"""Profiler traces. The long form reads a trace of 1 GB: DECODE_AB_TRACE_MB=1000 pytest tests/fuzz/test_traces.py"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.environment import ROOT
from app.errors import LabError
from kernels.trace import LIMIT_EVENT_BYTES, TraceError, read_device, read_launches
from tests.fuzz.trying import damaged, refusal, torn, tries
from tests.kernels.made_trace import H200, STOCK, launch

NOISE = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.5, "dur": 2}
GOOD = {"schemaVersion": 1, "deviceProperties": [H200], "traceEvents": [NOISE, launch(), launch(dur=50.0), NOISE]}
TRACE_MB = int(os.environ.get("DECODE_AB_TRACE_MB", "50"))
# Python, the parser and its buffers; a trace of 50 MB read whole takes ten times as much.
LIMIT_PEAK_MB = 40


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces") / "any.json"


def read(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return refusal(as_lab(lambda: read_launches(file, STOCK))) or refusal(as_lab(lambda: read_device(file)))


def as_lab(read: Callable[[], object]) -> Callable[[], object]:
    """As app.gate.profile does: kernels/ knows nothing of the lab's errors."""

    def call() -> object:
        try:
            return read()
        except TraceError as error:
            raise LabError(str(error)) from error

    return call


@tries(150)
@given(value=damaged(GOOD))
def test_trace_with_any_value_at_any_place_is_read_or_refused(file: Path, value: object) -> None:
    read(file, json.dumps(value).encode())


@tries(150)
@given(data=torn(json.dumps(GOOD).encode()))
def test_torn_trace_is_read_or_refused(file: Path, data: bytes) -> None:
    read(file, data)


@tries(60)
@given(data=torn(gzip.compress(json.dumps(GOOD).encode(), mtime=0)))
def test_torn_packed_trace_is_read_or_refused(file: Path, data: bytes) -> None:
    read(file, data)


@tries(60)
@given(data=st.binary(max_size=100))
def test_any_bytes_are_refused(file: Path, data: bytes) -> None:
    assert read(file, data)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"args":'])
def test_deep_nesting_is_read_or_refused(file: Path, opening: str) -> None:
    assert read(file, b'{"traceEvents": [' + opening.encode() * 100_000)


def test_one_event_without_end_is_refused_before_it_fills_the_memory(file: Path) -> None:
    data = b'{"traceEvents": [{"name": "' + b"x" * (LIMIT_EVENT_BYTES + 10**6) + b'"}]}'
    file.write_bytes(gzip.compress(data, 1))
    assert "without the end of an event" in refusal(as_lab(lambda: read_launches(file, STOCK)))


def test_launches_of_ever_new_kinds_are_refused(file: Path) -> None:
    events = (json.dumps(launch(shared=n)) for n in range(10_001))
    file.write_text(f'{{"traceEvents": [{",".join(events)}]}}')
    assert "more than 10000 kinds" in refusal(as_lab(lambda: read_launches(file, STOCK)))


# VmHWM and not ru_maxrss, which a child inherits from its parent.
READ = """
import sys
from pathlib import Path
from kernels.trace import read_device, read_launches
path = Path(sys.argv[1])
groups = read_launches(path, sys.argv[2])
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(sum(g.count for g in groups), read_device(path).arch, int(peak.split()[1]) // 1024)
"""


@pytest.mark.timeout(3600)
def test_large_trace_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path, launches = write_large(tmp_path / "large.json", TRACE_MB)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", READ, path, STOCK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    count, arch, peak_mb = map(int, done.stdout.split())
    print(f"{TRACE_MB} MB read in {time.monotonic() - began:.1f} s with {peak_mb} MB resident at most")
    assert (count, arch) == (launches, 90)
    assert peak_mb < LIMIT_PEAK_MB


def write_large(path: Path, size_mb: int) -> tuple[Path, int]:
    """A trace of about that size, and how many launches of the kernel it holds: one event in ten."""
    chunk = ",".join(json.dumps(e) for e in (launch(), *[launch(name=f"other_{n}") for n in range(9)])) + ","
    repeats = size_mb * 10**6 // len(chunk)
    with path.open("w") as out:
        out.write(f'{{"deviceProperties": [{json.dumps(H200)}], "traceEvents": [')
        for _ in range(repeats):
            out.write(chunk)
        out.write(json.dumps(NOISE) + "]}")
    return path, repeats
