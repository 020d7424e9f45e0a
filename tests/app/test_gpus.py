from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.campaign.conditions import conditions
from app.command import NOT_FOUND, Ran, Runner
from app.engine.sglang.engine import device_arch
from app.errors import DriverMissingError, NotReadyError
from app.gpus import arch_of, query

BROKEN = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


def answering(ran: Ran) -> Runner:
    return lambda argv: ran


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first nvidia-smi on the path; a test says what it prints."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "nvidia-smi"


def prints(program: Path, text: str, code: int = 0) -> None:
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {code}\n")
    program.chmod(0o755)


def test_each_gpu_answers_by_field() -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> Ran:
        asked.append(argv)
        return Ran(0, "0, NVIDIA H200, 9.0\n1, NVIDIA H200, 9.0\n")

    assert [card["name"] for card in query(("name", "compute_cap"), run)] == ["NVIDIA H200"] * 2
    assert asked == [("nvidia-smi", "--query-gpu=index,name,compute_cap", "--format=csv,noheader")]


@pytest.mark.parametrize(
    ("ran", "kind", "says"),
    [
        (Ran(NOT_FOUND), DriverMissingError, "no nvidia-smi here"),
        (Ran(9, f"{BROKEN}\n"), NotReadyError, "tells no GPU's name: NVIDIA-SMI has failed"),
        (Ran(0, "No devices were found\n"), NotReadyError, "No devices were found"),
        (Ran(124, err="nvidia-smi did not answer within 30 s"), NotReadyError, "did not answer within 30 s"),
    ],
)
def test_what_cannot_be_asked_fails_in_one_way(ran: Ran, kind: type[NotReadyError], says: str) -> None:
    with pytest.raises(kind, match=says):
        query(("name",), answering(ran))


def test_a_capability_names_an_arch() -> None:
    assert (arch_of("12.0"), arch_of("9.0")) == (120, 90)
    with pytest.raises(NotReadyError, match=r"\[N/A\]"):
        arch_of("[N/A]")


def test_an_engine_takes_the_first_gpus_arch(nvidia_smi: Path) -> None:
    prints(nvidia_smi, "0, 9.0")
    assert device_arch() == 90


def test_conditions_name_each_field_over_all_gpus_or_what_the_driver_said(nvidia_smi: Path) -> None:
    prints(nvidia_smi, "0, H200, 580.1, 1980 MHz, 700 W, Enabled")
    assert conditions()["gpu.clocks.max.sm"] == "1980 MHz"
    prints(nvidia_smi, "Unable to determine the device handle", 9)
    assert "Unable to determine" in conditions()["gpu.state"]


def test_conditions_hold_which_cards_are_asked_for_and_how_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert "gpu.order" not in conditions()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert (conditions()["gpu.visible"], conditions()["gpu.order"]) == ("1", "PCI_BUS_ID")


def test_what_all_cards_say_is_said_once_and_where_one_differs_each_is_heard(nvidia_smi: Path) -> None:
    prints(nvidia_smi, "0, H200, 580.1, 1980 MHz, 700 W, Enabled\n1, H200, 580.1, 1980 MHz, 600 W, Enabled\n")
    found = conditions()
    assert (found["gpu.name"], found["gpu.power.limit"], found["gpu.count"]) == ("H200", "700 W, 600 W", "2")


def test_machines_equal_in_all_else_are_told_apart_by_their_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for boot in ("b25e4b3a-94c1-4d3b-a3c9-f4be6ef2c2b0\n", "0d0f92e6-51c3-4bb8-8f4c-1f5dbe9a3f10\n"):
        (tmp_path / "boot_id").write_text(boot)
        monkeypatch.setattr("app.campaign.conditions.BOOT_ID", tmp_path / "boot_id")
        seen.append(conditions())
    assert {k for k in seen[0] if seen[0][k] != seen[1][k]} == {"boot"}
