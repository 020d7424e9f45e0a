"""GPU readings, from a stand-in for nvidia-smi that prints what a real H200 printed."""

from __future__ import annotations

import math
from pathlib import Path

import gevent
import pytest

from loadtest.measure.gpu import GpuSample, GpuTelemetry, check_gpus, gpu_from_json, gpu_json, parse_line

LINE = "0, 555, 3201, 126.09, 37, 0x0000000000000001\n"


def test_reading_is_parsed_and_survives_its_json() -> None:
    sample = parse_line(LINE, 7)
    assert sample == GpuSample(7, 0, 555, 3201, 126.09, 37, 1)
    assert gpu_from_json(gpu_json(sample)) == sample


@pytest.mark.parametrize("line", ["", "Unable to determine the device handle", "0, 1, 2", "x, 1, 2, 3, 4, 0x0"])
def test_other_output_is_no_reading(line: str) -> None:
    assert parse_line(line, 0) is None


def test_missing_value_is_not_a_number() -> None:
    sample = parse_line("1, 555, 3201, [N/A], 37, 0x0", 0)
    assert sample is not None
    assert math.isnan(sample.power_w)


@pytest.mark.parametrize(
    ("reasons", "word"),
    [(0x8, "hardware slowdown"), (0x20, "software thermal"), (0x40, "hardware thermal"), (0x80, "power brake")],
)
def test_throttling_in_the_window_is_said(reasons: int, word: str) -> None:
    (reason,) = check_gpus([GpuSample(5, 2, 1, 1, 1, 1, reasons | 0x4)], 0, 9)
    assert reason == f"GPU 2 throttled, {word}"


def test_idle_power_cap_and_throttling_outside_the_window_say_nothing() -> None:
    assert check_gpus([GpuSample(5, 0, 1, 1, 1, 1, 0x5), GpuSample(20, 0, 1, 1, 1, 1, 0x8)], 0, 9) == []


def test_telemetry_reads_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{LINE.strip()}'\necho '{LINE.strip()}'\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    telemetry = GpuTelemetry()
    telemetry.start()
    gevent.sleep(0.3)
    telemetry.stop()
    assert [s.sm_mhz for s in telemetry.samples] == [555, 555]


def test_machine_without_a_gpu_has_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    telemetry = GpuTelemetry()
    telemetry.start()
    telemetry.stop()
    assert telemetry.samples == []
