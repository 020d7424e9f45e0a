from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.command import Ran
from app.doctor.cards import capability, cards, clocks, count, driver, idle
from tests.app.doctor.machine import CLOCKS, QUERY, gpus, machine

FAULT = Ran(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")


def test_cards_are_read_from_nvidia_smi(tmp_path: Path) -> None:
    card = cards(machine(tmp_path, {QUERY: gpus(8)}))[7]
    assert (card.index, card.capability, card.memory_mib, card.persistent) == (7, "12.0", 97887, True)


@pytest.mark.parametrize("answer", [FAULT, Ran(0, "No devices were found\n"), Ran(0, gpus(1, capability="[N/A]"))])
def test_a_card_that_cannot_be_read_is_none(tmp_path: Path, answer: Ran) -> None:
    assert cards(machine(tmp_path, {QUERY: answer})) == ()


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({}, "fail", "no nvidia-smi"),
        ({QUERY: FAULT}, "fail", "couldn't communicate with the NVIDIA driver"),
        ({QUERY: gpus(1, driver="565.57.01")}, "fail", "driver 565.57.01 is older"),
        ({QUERY: gpus(1, driver="575.51.03")}, "warn", "compatibility package"),
        ({QUERY: gpus(1, capability="9.0", driver="535.1")}, "warn", "compatibility package"),
        ({QUERY: gpus(1)}, "ok", "driver 580.95.05"),
    ],
)
def test_the_driver_is_held_to_card_and_cuda(tmp_path: Path, answers: Any, status: str, says: str) -> None:
    finding = driver(machine(tmp_path, answers))
    assert (finding.status, says in finding.found) == (status, True)


@pytest.mark.parametrize(
    ("answer", "status", "remedy"),
    [
        (gpus(2), "ok", ""),
        (gpus(2, "NVIDIA H200", "9.0"), "fail", "set CUDA_ARCH=90"),
        (gpus(2, "NVIDIA L40S", "8.9"), "fail", "sm_90, sm_120"),
        (gpus(1) + gpus(2, "NVIDIA H200", "9.0").splitlines()[1], "fail", "one kind"),
    ],
)
def test_the_wanted_capability_is_that_of_the_settings(tmp_path: Path, answer: str, status: str, remedy: str) -> None:
    finding = capability(machine(tmp_path, {QUERY: answer}))
    assert (finding.status, remedy in finding.remedy) == (status, True)


def test_an_h200_suits_settings_for_sm_90(tmp_path: Path) -> None:
    answer = "0, NVIDIA H200, 580.159.04, 9.0, 143771 MiB, 0 MiB, Enabled\n"
    found = capability(machine(tmp_path, {QUERY: answer}, cuda_arch=90))
    assert (found.status, found.found) == ("ok", "NVIDIA H200 (9.0) is sm_90")


@pytest.mark.parametrize(
    ("here", "settings", "status", "remedy"),
    [
        (8, {}, "ok", ""),
        (7, {}, "fail", "PREFILL_TP=2 DECODE_TP=2 DECODE_FIRST_GPU=2"),
        (4, {"prefill_tp": 2, "decode_tp": 2, "decode_first_gpu": 2}, "ok", ""),
        (4, {"prefill_tp": 2, "decode_tp": 2}, "fail", "=2"),
        (1, {}, "fail", "two hosts"),
        (4, {"decode_first_gpu": 0, "host_ip": "10.0.0.1"}, "ok", ""),
    ],
)
def test_gpus_are_counted_where_the_roles_lie(
    tmp_path: Path, here: int, settings: Any, status: str, remedy: str
) -> None:
    finding = count(machine(tmp_path, {QUERY: gpus(here)}, **settings))
    assert (finding.status, remedy in finding.remedy) == (status, True)


@pytest.mark.parametrize(("used_mib", "status"), [(4, "ok"), (90000, "warn")])
def test_memory_in_use_is_told(tmp_path: Path, used_mib: int, status: str) -> None:
    assert idle(machine(tmp_path, {QUERY: gpus(2, used_mib=used_mib)})).status == status


@pytest.mark.parametrize(
    ("persistence", "answer", "status", "says"),
    [
        ("Disabled", "", "warn", "persistence mode is off on GPU 0, 1"),
        (
            "Enabled",
            "0, 345 MHz, 1980 MHz, 0x0000000000000001\n",
            "warn",
            "no lock on 1 of 1 GPUs; the first runs at 345 MHz",
        ),
        ("Enabled", "0, 345 MHz, 1980 MHz, [N/A]\n", "warn", "no lock"),
        ("Enabled", "0, 1500 MHz, 1980 MHz, 0x0000000000000002\n", "ok", "held by a setting"),
        (
            "Enabled",
            Ran(2, 'Field "clocks_event_reasons.active" is not a valid field to query.'),
            "warn",
            "not a valid field",
        ),
    ],
)
def test_clock_policy_is_told_as_nvidia_smi_shows_it(
    tmp_path: Path, persistence: str, answer: Ran | str, status: str, says: str
) -> None:
    finding = clocks(machine(tmp_path, {QUERY: gpus(2, persistence=persistence), CLOCKS: answer}))
    assert (finding.status, says in finding.found) == (status, True)


@pytest.mark.parametrize("check", [capability, count, idle, clocks])
def test_without_a_card_nothing_of_it_is_claimed(tmp_path: Path, check: Any) -> None:
    assert check(machine(tmp_path)).status == "skipped"
