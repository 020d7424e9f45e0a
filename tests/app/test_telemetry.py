from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from app.telemetry import Reading, Telemetry, nvml


def reading(throttle: int) -> Reading:
    return Reading(time.monotonic_ns(), 0, 2400, 14000, 590.0, 71, throttle)


def recorded(throttle: int) -> Telemetry:
    with Telemetry(lambda: [reading(throttle)], interval_s=0.01) as telemetry:
        time.sleep(0.1)
    return telemetry


def test_readings_are_taken_while_a_load_runs_and_end_with_it() -> None:
    telemetry = recorded(0)
    taken = len(telemetry.readings)
    assert taken >= 2
    time.sleep(0.05)
    assert len(telemetry.readings) == taken


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_a_gpu_throttled_by_heat_or_board_voids_the_load(bit: int) -> None:
    assert recorded(bit | 0x1).void_reasons()[0].startswith("GPU 0 throttled")


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4])
def test_idle_application_clocks_and_the_power_cap_do_not(bits: int) -> None:
    assert recorded(bits).void_reasons() == ()


def test_a_source_that_fails_is_told_and_ends_no_load() -> None:
    def fails() -> Sequence[Reading]:
        raise OSError("the driver was reloaded")

    with Telemetry(fails, interval_s=0.01) as telemetry:
        time.sleep(0.05)
    assert telemetry.to_json()["fault"] == "OSError: the driver was reloaded"


def test_a_host_without_nvml_is_recorded_as_such() -> None:
    source = nvml()
    telemetry = Telemetry(source)
    assert (telemetry.fault == "no NVML on this host") == (source is None)
