"""An audit passes only what was looked up, whatever the tool's own exit code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.errors import NotReadyError, UsageError
from app.project.audit import audit, show_audit

SOUND = {"name": "pyyaml", "version": "6.0", "vulns": []}
SKIPPED = {"name": "rich", "skip_reason": "not found on the index: rich (15.0.0)"}
KNOWN = {"name": "urllib3", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "PYSEC-2"}]}


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "base.lock"
    path.write_text("pyyaml==6.0 --hash=sha256:0\n")
    return path


def pip_audit(monkeypatch: pytest.MonkeyPatch, folder: Path, says: object, code: int = 0, complains: str = "") -> None:
    """A program of that name on the path, which keeps its arguments and gives this answer."""
    (folder / "says").write_text(says if isinstance(says, str) else json.dumps({"dependencies": says}) + "\n")
    tool = folder / "pip-audit"
    tool.write_text(
        f'#!/bin/sh\necho "$@" >{folder}/asked\nwhile read -r line; do echo "$line"; done <{folder}/says\n'
        f'echo "{complains}" >&2\nexit {code}\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_packages_that_were_looked_up_and_are_sound_pass(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip_audit(monkeypatch, tmp_path, [SOUND])
    assert audit([lock], "osv")
    assert capsys.readouterr().out == "base.lock: 1 of 1 package looked up, 0 with a known vulnerability\n"
    assert "--require-hashes" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("code", [0, 1])
def test_packages_that_were_skipped_are_told_and_do_not_pass(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    pip_audit(monkeypatch, tmp_path, [SOUND, SKIPPED], code)
    with pytest.raises(NotReadyError, match=r"not audited: 1 of 2 packages, such as not found on the index: rich"):
        audit([lock], "pypi")


def test_a_file_of_which_nothing_was_looked_up_is_not_called_free_of_vulnerabilities(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip_audit(monkeypatch, tmp_path, [SKIPPED])
    with pytest.raises(NotReadyError):
        audit([lock], "pypi")
    assert capsys.readouterr().out == "base.lock: 0 of 1 package looked up\n"


def test_a_known_vulnerability_fails_beside_packages_that_were_skipped(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pip_audit(monkeypatch, tmp_path, [KNOWN, SKIPPED], 1)
    assert not audit([lock], "pypi")
    assert "  urllib3 1.0: PYSEC-1, PYSEC-2\nnot audited: 1 of 2 packages" in capsys.readouterr().out


@pytest.mark.parametrize("says", ["", "Traceback\n", "{}\n", "[]\n"])
def test_an_audit_that_broke_off_does_not_pass(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    pip_audit(monkeypatch, tmp_path, says, 1, "Failed to resolve")
    with pytest.raises(NotReadyError, match=r"not audited: pip-audit ended with 1 on base\.lock: Failed to resolve"):
        audit([lock], "osv")


def test_without_pip_audit_nothing_passes(lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(NotReadyError, match="not audited: there is no pip-audit here"):
        audit([lock], "pypi")


def test_an_unknown_service_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown service 'here'; known: osv, pypi"):
        show_audit("here")
