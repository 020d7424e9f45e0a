"""The compiler's processes: each step's a group of its own, all in one session of which nothing outlives its leader."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1
_STDOUT, _STDERR = 1, 2


def begin(work: Callable[[], object], words: Path, limit_s: float) -> int:
    """Forks a process that works, or is ended by SIGALRM at the limit; what it says is in a file, there at once."""
    parent = os.getpid()
    with words.open("wb", buffering=0) as file:
        if not (child := os.fork()):
            _work(work, file.fileno(), limit_s, parent)
    # Whichever of both comes first: it is killed as a group.
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    return child


def _work(work: Callable[[], object], words: int, limit_s: float, parent: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # It holds the channel of the answers open, on which whoever asked waits.
        _when_the_parent_ends(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setpgid(0, 0)
        # Goes on in a program that takes the process over.
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        for stream in (_STDOUT, _STDERR):
            os.dup2(words, stream)
        work()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def next_ended() -> tuple[int, int]:
    """Waits for one that ended: its id and exit code, negative for a signal; nothing that it started is left."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    child = ended.si_pid if ended else 0
    # Not waited for, it keeps others from getting its number.
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    return child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def end_session(leader: int) -> None:
    """Kills all of a session but its leader, whatever group it is in and even where the leader is gone."""
    for _ in range(200):
        if not (left := [one for one in _members(leader) if one != leader]):
            return
        for one in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.01)


def _members(session: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The program's name comes before, in parentheses, and may hold anything.
            state, _, _, found = entry.read_bytes().rpartition(b")")[2].split()[:4]
            if int(found) == session and state not in b"ZX":
                yield int(entry.parent.name)


def end_when_told(channel: int) -> None:
    """Lets SIGTERM end this process as an exit does; it also comes when the thread that started the process ends.

    channel: a pipe that the parent reads. Nobody there is the end, too.
    """
    signal.signal(signal.SIGTERM, _exit)
    _when_the_parent_ends(signal.SIGTERM)
    # No signal comes from a parent that has ended already.
    poll = select.poll()
    poll.register(channel, 0)
    if poll.poll(0):
        sys.exit(1)


def _when_the_parent_ends(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _exit(number: int, _: object) -> NoReturn:
    # Told twice, it still puts its things in order.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
