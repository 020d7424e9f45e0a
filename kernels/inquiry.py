"""Asking the compiler, a process beside this one that answers as it goes: within a limit, and nothing of it is left."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kernels.compiler import LISTING_S, TIMEOUT_S, crash, failure
from kernels.processes import end_session
from kernels.toolchain import Toolchain

ROOT = Path(__file__).parents[1]
PROCESSES = 2
LOAD_S = 300.0
# For an end in good order.
GRACE_S = 5.0
_TURN = threading.Lock()

_Answered = Generator[tuple[int, dict[str, Any]], None, None]


def compile_requests(requests: Sequence[Mapping[str, Any]], chain: Toolchain) -> _Answered:
    """Each request's number with its answer, as they come; closed early, it leaves nothing running.

    PROCESSES compile at once, however many threads ask: the others wait.
    """
    left = set(range(len(requests)))
    limit_s = LOAD_S + (TIMEOUT_S + LISTING_S) * math.ceil(len(requests) / PROCESSES)
    with _TURN, tempfile.TemporaryFile() as words:
        try:
            with _compiler(requests, chain, words) as (compiler, answers):
                for number, answer in _read(answers, limit_s):
                    left.discard(number)
                    yield number, answer
            words.seek(0)
            fault = crash("the compiler", compiler.returncode, words.read().decode(errors="replace"), limit_s)
        except TimeoutError:
            fault = failure(f"the compiler did not end all of {len(requests)} within {limit_s:g} s")
    yield from ((number, fault) for number in sorted(left))


@contextmanager
def _compiler(
    requests: Sequence[Mapping[str, Any]], chain: Toolchain, words: IO[bytes]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process, and where its answers are read; told to end at once where the block fails."""
    here, there = os.pipe()
    with os.fdopen(here), os.fdopen(there, "w") as far, tempfile.TemporaryFile("w+") as asked:
        json.dump([PROCESSES, requests], asked)
        asked.seek(0)
        process = _begun(chain, asked, words, there)
        try:
            far.close()
            yield process, here
        except BaseException:
            process.terminate()
            raise
        finally:
            _end(process)


def _begun(chain: Toolchain, asked: IO[str], words: IO[bytes], answers: int) -> subprocess.Popen[bytes]:
    # Settings of the caller's own Triton would make the answer depend on more than the request.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "PTXAS_", "PYTHON"))}
    # A session of its own: the terminal's Ctrl-C reaches this process alone, which ends that one.
    return subprocess.Popen(
        [str(chain.python), "-m", "kernels.compiler", str(answers)],
        stdin=asked, stdout=words, stderr=words, pass_fds=[answers], cwd=ROOT, env=environment,
        start_new_session=True,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        process.kill()
        process.wait()
        end_session(process.pid)


def _read(answers: int, limit_s: float) -> _Answered:
    """What comes of them until the other end is closed; TimeoutError at the limit."""
    ends, rest, poll = time.monotonic() + limit_s, b"", select.poll()
    poll.register(answers, select.POLLIN)
    while poll.poll(max(0.0, ends - time.monotonic()) * 1000):
        if not (chunk := os.read(answers, 1 << 16)):
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
    raise TimeoutError
