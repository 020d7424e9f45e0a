"""One supervised local process: its own process group, its log file, and an end that leaves no child behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.engine import Command
from app.errors import NotReadyError
from loadtest.client.key import KEY_FILE, without_key

PR_SET_PDEATHSIG = 1
# The router colours its log on anything, whatever NO_COLOR says.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LAST_LINES = 60
# The last line of a traceback.
FAULT = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)\b: \S")
# What a service may inherit: nothing that could change its behaviour unrecorded, and no proxy.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME") + (
    # Conditions of each start hold both: which cards, and how their numbers count.
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    # The path of the key's file, never the key.
    KEY_FILE,
)


class Service:
    """A named process that is started once and stopped once."""

    def __init__(self, name: str, command: Command, log: Path) -> None:
        self.name, self.command, self.log = name, command, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process; its output goes to the log file."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=service_environment(self.command),
                    start_new_session=True,
                    preexec_fn=die_with_parent(os.getpid()),
                )
        except OSError as e:
            raise NotReadyError(f"{self.name} could not be started: {e}; command: {self.command.argv[0]}") from e

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id while it runs or has not been waited for; None before its start and after its stop."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code once ended; negative for a signal."""
        return None if self._process is None else self._process.poll()

    def stop(self, grace_s: float = 10.0) -> None:
        """Ends the whole process group: politely first, then for good."""
        if self._process is None:
            return
        for sign, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            if self._signal(sign) and wait_until(lambda: not self._group_alive(), wait_s, 0.02):
                break
        self._process.wait()
        self._process = None

    def wait(self, timeout_s: float) -> int | None:
        """Exit code, or None when it has not ended within the time."""
        return self.exit_code if wait_until(lambda: not self.running, timeout_s) else None

    def tail(self, lines: int = 20) -> list[str]:
        """Last lines of the log without their colours; empty when there is none."""
        if not self.log.is_file():
            return []
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 65536))
            text = COLOUR.sub("", log.read().decode(errors="replace"))
        return without_key(text, os.environ).splitlines()[-lines:]

    def last_words(self) -> str:
        """Why it ended, as far as its log tells."""
        return last_words(self.tail(LAST_LINES))

    def _signal(self, sign: signal.Signals) -> bool:
        if self._process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, sign)
        return True

    def _group_alive(self) -> bool:
        if self._process is None:
            return False
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def last_words(lines: Sequence[str]) -> str:
    """Of the LAST_LINES of a log: the last exception, which others may talk after, or the last lines."""
    return next((line for line in reversed(lines) if FAULT.match(line)), " | ".join(lines[-3:])) or "no output"


def service_environment(command: Command) -> dict[str, str]:
    """The clean environment a service runs with: a few inherited names plus the command's own."""
    return {k: os.environ[k] for k in INHERITED if k in os.environ} | dict(command.env)


def wait_until(ready: Callable[[], bool], timeout_s: float, interval_s: float = 0.05) -> bool:
    """Whether `ready` became true within the time."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_s)
    return True


def die_with_parent(parent: int) -> Callable[[], None]:
    """What a child calls before it becomes its program, so that it is killed when the thread that made it ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def set_death_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return set_death_signal
