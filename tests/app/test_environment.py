from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app import environment
from app.errors import NotReadyError


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An environment with no extra in it; the commands that would install one."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    return asked


@pytest.mark.parametrize("extra", ["gate", "test", "torch", "docs"])
def test_an_extra_is_installed_once_and_says_what_it_takes(
    extra: str, fresh: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    environment.ensure(extra)
    environment.ensure(extra)
    assert len(fresh) == 1
    assert f"(once; about {environment.SIZES[extra]}" in capsys.readouterr().err


def test_an_extra_is_not_put_into_the_systems_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(NotReadyError, match="no virtual environment is active"):
        environment.ensure("gate")


def test_the_readme_tells_what_the_first_gate_installs() -> None:
    size, _, _ = environment.SIZES["gate"].partition(" on disk")
    told = f"{size} of Triton, which the first `./lab check` installs alone"
    assert told in (environment.ROOT / "README.md").read_text(encoding="utf-8")
