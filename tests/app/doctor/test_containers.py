from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.command import Ran
from app.doctor.containers import compose, daemon, docker_disk, nvidia_runtime, python_image, sglang_image
from tests.app.doctor.machine import DOWN, INFO, engine_info, machine

SOCKET = "unix:///var/run/docker.sock"
CONTEXT = "docker context inspect"
PRESENT = "docker image inspect"
REGISTRY = "docker manifest inspect"
ABSENT = Ran(1, err="Error response from daemon: No such image")


@pytest.fixture(autouse=True)
def default_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)


@pytest.mark.parametrize(
    ("answers", "status", "remedy"),
    [
        ({}, "fail", "install Docker Engine"),
        ({INFO: DOWN}, "fail", "systemctl start docker"),
        (
            {INFO: Ran(1, "", "permission denied while trying to connect to the Docker daemon socket")},
            "fail",
            "usermod",
        ),
        (
            {INFO: engine_info(), CONTEXT: "unix:///run/user/1000/docker.sock"},
            "fail",
            "export DOCKER_HOST=unix:///run/user",
        ),
        ({INFO: engine_info(), CONTEXT: SOCKET}, "ok", ""),
    ],
)
def test_the_daemon_must_answer_command_and_builds_alike(
    tmp_path: Path, answers: Any, status: str, remedy: str
) -> None:
    finding = daemon(machine(tmp_path, answers))
    assert (finding.status, remedy in finding.remedy) == (status, True)


def test_a_daemon_elsewhere_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://lab")
    finding = daemon(machine(tmp_path, {INFO: engine_info(), CONTEXT: "ssh://lab"}))
    assert (finding.status, "run the doctor there too" in finding.remedy) == ("warn", True)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Ran(1, err="docker: 'compose' is not a docker command."), "fail"),
        ("1.29.2\n", "fail"),
        ("v2.24.3\n", "fail"),
        ("2.24.4\n", "ok"),
        ("5.6.1\n", "ok"),
    ],
)
def test_compose_must_know_override(tmp_path: Path, answer: Ran | str, status: str) -> None:
    assert compose(machine(tmp_path, {"docker compose version": answer})).status == status


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ({INFO: engine_info()}, "ok"),
        ({INFO: engine_info(Runtimes={"runc": {}})}, "fail"),
        (
            {INFO: engine_info(Runtimes={"runc": {}}), "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.17.8"},
            "warn",
        ),
        ({INFO: engine_info(Runtimes={}, DiscoveredDevices=[{"Source": "cdi", "ID": "nvidia.com/gpu=0"}])}, "warn"),
        ({INFO: DOWN}, "skipped"),
    ],
)
def test_the_daemon_must_hand_out_gpus(tmp_path: Path, answers: Any, status: str) -> None:
    assert nvidia_runtime(machine(tmp_path, answers)).status == status


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({PRESENT: "sha256:16ab"}, "ok", "lmsysorg/sglang:v0.5.17 is here"),
        ({PRESENT: ABSENT, REGISTRY: "{}"}, "warn", "its registry has it"),
        ({PRESENT: ABSENT, REGISTRY: Ran(1, err="manifest unknown")}, "fail", "check its digest"),
        ({PRESENT: ABSENT, REGISTRY: Ran(1, err="dial tcp: i/o timeout")}, "fail", "offline"),
    ],
)
def test_the_image_that_serves_must_be_had(tmp_path: Path, answers: Any, status: str, says: str) -> None:
    finding = sglang_image(machine(tmp_path, {INFO: engine_info(), **answers}))
    assert (finding.status, says in finding.found) == (status, True)


def test_image_and_release_must_agree(tmp_path: Path) -> None:
    found = sglang_image(machine(tmp_path, {INFO: engine_info(), PRESENT: "sha256:1"}, sglang_release="0.5.23"))
    assert (found.status, found.found) == ("fail", "SGLANG_IMAGE is 0.5.17, SGLANG_RELEASE 0.5.23")


def test_without_a_daemon_no_image_is_looked_for(tmp_path: Path) -> None:
    assert python_image(machine(tmp_path, {INFO: DOWN, PRESENT: "sha256:1"})).status == "skipped"


@pytest.mark.parametrize(
    ("engine", "answers", "free_gib", "status"),
    [
        ("sglang", {PRESENT: ABSENT}, 69, "fail"),
        ("sglang", {PRESENT: ABSENT}, 71, "ok"),
        ("sglang", {PRESENT: "sha256:1"}, 11, "ok"),
        ("sim", {}, 4, "ok"),
        ("sim", {}, 2, "fail"),
    ],
)
def test_room_is_needed_for_what_will_be_pulled(
    tmp_path: Path, engine: str, answers: Any, free_gib: float, status: str
) -> None:
    host = machine(tmp_path, {INFO: engine_info(), **answers}, engine=engine, free_gib=free_gib)
    assert docker_disk(host).status == status
