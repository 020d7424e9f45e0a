from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from app.records import write_json
from app.stack.warm import main
from tests.app.engine.sglang.standin import make_standin


def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    make_standin(made / "site", sm120=False)
    write_json(made / "installation.json", {"version": "0.5.17", "paths": ["site"], "environment": {}})
    (made / "caches").mkdir()
    (made / "caches" / "module").write_text("compiled")
    monkeypatch.setenv("SGLANG_HOME", str(made))
    monkeypatch.setenv("SGLANG_PYTHON", sys.executable)
    return made


def test_a_first_start_is_shown_to_answer_and_leaves_caches_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home(tmp_path, monkeypatch)
    out, server = tmp_path / "out", "topology=single,arch=90"
    assert main(["--out", str(out), "--server", server, "--folder", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "ready after" in said
    assert "0 sm_120 calls" in said
    assert (out / "warm-decode.log").is_file()
    with tarfile.open(out / "caches.tar.gz") as tar:
        assert "caches/module" in tar.getnames()


def test_a_server_that_cannot_be_found_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SGLANG_HOME", str(tmp_path))
    assert main(["--out", str(tmp_path / "out"), "--server", "arch=90"]) == 1
    assert "make the folder with invoke prepare-gpu" in capsys.readouterr().err
