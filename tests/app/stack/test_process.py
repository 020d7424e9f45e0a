from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.engine import Command
from app.environment import ROOT
from app.errors import NotReadyError
from app.stack.process import Service, service_environment, wait_until

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = (
    "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print(p.pid, flush=True); time.sleep(60)"
)


def started(tmp_path: Path, code: str) -> Service:
    service = Service("sleeper", Command((sys.executable, "-c", code)), tmp_path / "log")
    service.start()
    assert wait_until(lambda: bool(service.tail()), 10)
    return service


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_stopped_service_no_longer_runs(tmp_path: Path) -> None:
    service = started(tmp_path, SLEEPER)
    assert service.running
    service.stop()
    assert not service.running


def test_a_service_that_ignores_the_polite_signal_is_ended_all_the_same(tmp_path: Path) -> None:
    service = started(tmp_path, STUBBORN)
    began = time.monotonic()
    service.stop(grace_s=0.3)
    assert not service.running
    assert time.monotonic() - began < 5


def test_stopping_ends_the_children_of_the_service(tmp_path: Path) -> None:
    service = started(tmp_path, PARENT)
    child = int(service.tail()[0])
    service.stop()
    assert wait_until(lambda: not alive(child), 5)


def test_a_service_ends_when_the_lab_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from app.engine import Command\n"
        "from app.stack.process import Service\n"
        f"s = Service('s', Command((sys.executable, '-c', {SLEEPER!r})), Path({str(tmp_path / 'log')!r})); s.start()\n"
        "print(s._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as lab:
        assert lab.stdout is not None
        child = int(lab.stdout.readline())
        assert alive(child)
        lab.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not alive(child), 5)


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="no-such-program"):
        Service("router", Command(("/no-such-program",)), tmp_path / "log").start()


def test_a_service_inherits_no_proxy_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    monkeypatch.setenv("API_TOKEN", "secret")
    environment = service_environment(Command((), {"A": "1"}))
    assert environment["A"] == "1"
    assert not {"HTTP_PROXY", "API_TOKEN"} & environment.keys()
    assert environment["PATH"] == os.environ["PATH"]


def test_a_service_counts_its_cards_in_the_order_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    order = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for name, value in order.items():
        monkeypatch.setenv(name, value)
    assert service_environment(Command((), {})).items() >= order.items()


def test_last_lines_come_without_their_colours(tmp_path: Path) -> None:
    service = started(tmp_path, "import time; print('\\x1b[33m WARN\\x1b[0m up', flush=True); time.sleep(60)")
    assert service.tail() == [" WARN up"]
    service.stop()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "Traceback (most recent call last):\n  raise Exception(\nException: Capture failed: Unsupported h_q: 16\n"
            "Possible solutions:\n1. less memory\n\n[12:00] Received sigquit from a child process.\n",
            "Exception: Capture failed: Unsupported h_q: 16",
        ),
        ("torch.OutOfMemoryError: 2 GiB\nkilled\n", "torch.OutOfMemoryError: 2 GiB"),
        ("one\ntwo\nthree\nfour\n", "two | three | four"),
        ("", "no output"),
    ],
)
def test_last_words_are_the_last_exception_or_the_last_lines(tmp_path: Path, log: str, words: str) -> None:
    service = Service("decode", Command(("true",)), tmp_path / "log")
    service.log.write_text(log)
    assert service.last_words() == words
