"""The servers' API key: brought by every client, and found nowhere but in its file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.engine import Command
from app.engine.probe import send_canary, server_info
from app.engine.sim.engine import SimEngine
from app.environment import ROOT
from app.errors import NotReadyError, UsageError
from app.stack.compose import compose_files
from app.stack.local import LocalStack
from app.stack.process import Service, service_environment, wait_until
from loadtest.client.key import KEY_FILE, authorization, read_key, without_key
from loadtest.client.rows import read_rows
from tests.app.stack.test_local import kernel

KEY = "k3y-that-must-stay-in-its-file"
OPTIONS = "--variants v1 --blocks 4 --concurrency 2 --time-scale 40 --lengths 64,16 --settle 2 --window 8 --seed 1"


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "secrets" / "sglang.yaml"
    file.parent.mkdir()
    file.write_text(f"# a comment\napi-key: {KEY}\n")
    monkeypatch.setenv(KEY_FILE, str(file))
    return file


@pytest.mark.parametrize("line", ["api-key: {}", "api-key: '{}'", 'api-key: "{}"  '])
def test_key_is_read_as_yaml_writes_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "k").write_text(line.format(KEY))
    assert read_key(tmp_path / "k") == KEY


@pytest.mark.parametrize(
    "text", ["", KEY, "api-key:", "api-key: a b c d e f", "api-key: short", f"api-key: {KEY}\n" * 2]
)
def test_a_file_without_one_key_is_refused_unquoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(UsageError, match="needs one line") as caught:
        read_key(tmp_path / "k")
    assert KEY not in str(caught.value)


def test_no_file_means_no_header() -> None:
    assert (authorization({}), without_key(KEY, {})) == ({}, KEY)


def test_words_of_a_server_lose_the_key(keyed: Path) -> None:
    assert without_key(f"bad key {KEY}!", os.environ) == "bad key [key]!"


def test_a_log_that_is_quoted_loses_the_key(keyed: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"server_args api_key='{KEY}'\n")
    assert Service("x", Command(("true",)), tmp_path / "log").tail() == ["server_args api_key='[key]'"]


def test_a_service_is_given_the_path_and_not_the_key(keyed: Path) -> None:
    environment = service_environment(Command(("true",)))
    assert environment[KEY_FILE] == str(keyed)
    assert KEY not in "".join(environment.values())


def test_the_servers_in_containers_take_the_key_as_a_secret(keyed: Path) -> None:
    assert compose_files("sglang") == ("docker-compose.yml", "compose.key.yml")
    assert "compose.key.yml" not in compose_files("sim")


class Watch:
    """Reads the command lines and environments of a process and all its children, again and again."""

    def __init__(self, process: psutil.Process) -> None:
        self.seen: dict[str, str] = {}
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            for one in self._family():
                for file in ("cmdline", "environ"):
                    try:
                        text = Path("/proc", str(one.pid), file).read_text(errors="replace")
                    except OSError:
                        continue
                    self.seen[f"{one.pid}/{file}"] = text

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return []


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watch, str]:
    """The folder of a real campaign on keyed servers, what its processes showed, and what it printed."""
    folder, secrets = tmp_path_factory.mktemp("keyed"), tmp_path_factory.mktemp("secrets")
    (secrets / "sglang.yaml").write_text(f"api-key: {KEY}\n")
    environment = {**os.environ, KEY_FILE: str(secrets / "sglang.yaml"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), "compare", *OPTIONS.split(), "--id", "keyed"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that works without a terminal lets its background jobs, and all below them, ignore it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        watch = Watch(psutil.Process(process.pid))
        # Two starts show all that a campaign's processes are given, and a lab that is interrupted has more to print.
        wait_until(lambda: len(rows_of(folder)) >= 2 or process.poll() is not None, 200.0, 0.1)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
        watch.stop()
    return folder, watch, printed


def rows_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/keyed/blocks/*/*/rows.parquet"))


@pytest.mark.slow
def test_a_campaign_on_keyed_servers_is_measured(measured: tuple[Path, Watch, str]) -> None:
    folder, _, printed = measured
    rows = [read_rows(path.parent) for path in rows_of(folder)]
    assert len(rows) >= 2, printed
    assert {status for r in rows for status in r.status.tolist()} == {200}


@pytest.mark.slow
def test_the_key_is_in_no_file_of_the_campaign(measured: tuple[Path, Watch, str]) -> None:
    folder, _, printed = measured
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert len(files) > 20
    assert [p for p in files if KEY.encode() in p.read_bytes()] == []
    assert KEY not in printed


@pytest.mark.slow
def test_the_key_is_in_no_command_line_and_no_environment(measured: tuple[Path, Watch, str]) -> None:
    _, watch, _ = measured
    assert len({place.split("/")[0] for place in watch.seen}) >= 6
    assert [place for place, text in watch.seen.items() if KEY in text] == []
    assert any("--key-file" in text for text in watch.seen.values())


def test_servers_refuse_clients_without_the_key(keyed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalStack(SimEngine(1, 20, key_file=keyed), tmp_path / "logs") as stack:
        endpoints = stack.up(kernel(tmp_path, "pinned", 4), "x")
        assert send_canary(endpoints).completion_tokens == 4
        monkeypatch.delenv(KEY_FILE)
        with pytest.raises(NotReadyError, match="Unauthorized"):
            send_canary(endpoints)
        assert "decode_ab" not in server_info(endpoints.decode_url)
