from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from app.command import Ran
from app.doctor import python
from tests.app.doctor.machine import machine

PIP = f"{sys.executable} -m pip index versions sglang"


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (Ran(1, err="ERROR: No matching distribution found for sglang"), "fail", "No matching distribution"),
        (Ran(124, err="pip did not answer within 30 s"), "fail", "did not answer"),
        ("sglang (0.5.23)\nAvailable versions: 0.5.23, 0.5.17.post1, 0.5.1\n", "fail", "has no 0.5.17"),
        ("sglang (0.5.23)\nAvailable versions: 0.5.23, 0.5.17, 0.5.16\n", "warn", "the package index has it"),
    ],
)
def test_a_wheel_that_is_not_cached_must_be_had(tmp_path: Path, answer: Ran | str, status: str, says: str) -> None:
    finding = python.wheel(machine(tmp_path, {PIP: answer}))
    assert (finding.status, says in finding.found) == (status, True)


def test_a_cached_wheel_asks_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "is_cached", lambda pin, cache: pin.version == "0.5.17")
    assert python.wheel(machine(tmp_path)).status == "ok"


@pytest.mark.parametrize(
    ("installed", "status", "says"),
    [(("base", "gate"), "ok", "are installed"), (("base",), "warn", "gate.lock is not"), ((), "warn", "base.lock")],
)
def test_the_environment_is_held_to_its_lock_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], status: str, says: str
) -> None:
    monkeypatch.setattr(python, "is_installed", lambda extra: extra in installed)
    finding = python.locks(machine(tmp_path))
    assert (finding.status, says in finding.found) == (status, True)


@pytest.mark.parametrize(("version", "status"), [("3.6.0", "warn"), ("locked", "ok"), (None, "warn")])
def test_the_gates_compiler_is_the_locked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, status: str
) -> None:
    def installed(_: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return python.locked_version(python.GATE_LOCK, "triton") if version == "locked" else version

    monkeypatch.setattr(importlib.metadata, "version", installed)
    assert python.triton(machine(tmp_path)).status == status


@pytest.mark.parametrize(("version", "status"), [((3, 10, 12), "fail"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")])
def test_an_old_python_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], status: str
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert python.interpreter(machine(tmp_path)).status == status


def test_the_systems_python_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert python.virtual_environment(machine(tmp_path)).status == "warn"
