"""The compiler's processes: what one kernel's fault costs the others, limits, and what is left at any end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernels import inquiry, resources
from kernels.inquiry import ROOT, compile_requests
from kernels.toolchain import Toolchain, ToolchainError

# The compiler's own way with processes; a kernel is a body of Python that makes its answer.
PYTHON = """\
#!{python}
import os, signal, subprocess, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, {root!r})
sys.argv = sys.argv[2:]
from kernels import compiler

def compiled(request, folder):
    names = {{"answer": {{"error": "tried", "error_kind": "CompilationError"}}}}
    exec(request["body"], globals(), names)
    return names["answer"]

compiler.compile_request = compiled
compiler._load_triton = lambda: None
{setup}
compiler.main()
"""
SLOW = "subprocess.run(['sleep', '60'])"
CODE = "answer = {'registers': 7}"
ASKS = """\
import sys
from pathlib import Path
from kernels.inquiry import compile_requests
from kernels.toolchain import Toolchain
list(compile_requests([{"body": sys.argv[2]}], Toolchain(Path(sys.argv[1]), "0")))
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the compiler alone, and in the environment of all that it starts.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def _chain(folder: Path, setup: str = "") -> Toolchain:
    text = PYTHON.format(python=sys.executable, root=str(ROOT), setup=setup)
    return Toolchain(_program(folder / "python", text), "0")


def _requests(*bodies: str) -> list[dict[str, str]]:
    return [{"body": body} for body in bodies]


def _answers(chain: Toolchain, *bodies: str) -> list[dict[str, Any]]:
    found = dict(compile_requests(_requests(*bodies), chain))
    return [found[number] for number in range(len(bodies))]


def _errors(chain: Toolchain, *bodies: str) -> list[str]:
    return [str(answer["error"]) for answer in _answers(chain, *bodies)]


def _appears(path: Path) -> bool:
    for _ in range(500):
        if path.exists():
            break
        time.sleep(0.02)
    return path.exists()


def _left(folder: Path) -> list[str]:
    """Programs of the compiler, and files that they made."""
    return _until_none(lambda: [*_running(folder), *map(str, (folder / "temporary").iterdir())])


def _until_none(find: Callable[[], list[str]]) -> list[str]:
    # What is killed takes a moment to end.
    for _ in range(100):
        if not (found := find()):
            break
        time.sleep(0.02)
    return found


def _running(folder: Path) -> list[str]:
    found, mark = [], f"TMPDIR={folder / 'temporary'}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_crash_of_one_kernel_leaves_the_others_their_answers(tmp_path: Path) -> None:
    crash = "print('last words', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    ended = "the compiler ended with -11: last words"
    assert _errors(_chain(tmp_path), "pass", crash, "pass") == ["tried", ended, "tried"]


def test_kernel_whose_process_is_killed_at_its_birth_leaves_the_others_their_answers(tmp_path: Path) -> None:
    setup = """born = []
os.register_at_fork(after_in_parent=lambda: born.append(1), after_in_child=lambda: born or os.kill(os.getpid(), 9))"""
    assert _errors(_chain(tmp_path, setup), "pass", "pass") == ["the compiler ended with -9: ", "tried"]


def test_kernel_for_which_there_is_no_room_leaves_the_others_their_answers(tmp_path: Path) -> None:
    setup = """make = Path.mkdir
def full(path):
    if path.name == "0":
        raise OSError(28, "No space left on device")
    make(path)
Path.mkdir = full"""
    fault = "the compiler cannot work: [Errno 28] No space left on device"
    assert _errors(_chain(tmp_path, setup), "pass", "pass") == [fault, "tried"]


def test_missing_disassembler_is_the_fault_of_what_needs_it_alone(tmp_path: Path) -> None:
    setup = "def absent(): raise RuntimeError('Cannot find nvdisasm')\ncompiler._disassembler = absent"
    fault = "the compiler cannot work: Cannot find nvdisasm"
    assert _errors(_chain(tmp_path, setup), CODE, "pass") == [fault, "tried"]


def _listing(folder: Path, text: str) -> str:
    program = _program(folder / "nvdisasm", f"#!/bin/sh\n{text}\n")
    return f"compiler._disassembler = lambda: {str(program)!r}\n"


def test_crash_of_the_listing_is_its_kernels_answer(tmp_path: Path) -> None:
    setup = _listing(tmp_path, "echo all is lost >&2; exit 3")
    fault = "listing the machine code ended with 3: all is lost"
    assert _errors(_chain(tmp_path, setup), CODE, "pass") == [fault, "tried"]


def test_what_the_listing_prints_is_counted(tmp_path: Path) -> None:
    setup = _listing(tmp_path, "echo '  /*0000*/  HMMA.16816.F32 R4, R8 ;'")
    (answer,) = _answers(_chain(tmp_path, setup), CODE)
    assert (answer["registers"], answer["instructions"], answer["mma"]) == (7, 1, 1)


def test_listing_ends_at_its_limit(tmp_path: Path) -> None:
    setup = _listing(tmp_path, "sleep 60; true") + "compiler.LISTING_S = 0.3"
    found = _errors(_chain(tmp_path, setup), CODE, "pass")
    assert found == ["listing the machine code did not end within 0.3 s", "tried"]
    assert not _left(tmp_path)


def test_kernel_ends_at_its_limit_with_the_programs_that_it_started(tmp_path: Path) -> None:
    patient = "signal.setitimer(signal.ITIMER_REAL, 0); time.sleep(60)"
    chain = _chain(tmp_path, "compiler.TIMEOUT_S = 0.4")
    with closing(compile_requests(_requests(SLOW, patient), chain)) as answers:
        number, answer = next(answers)
        assert (number, answer["error"]) == (0, "the compiler did not end within 0.4 s")
        # While the compiler works on the other.
        assert not _until_none(lambda: [program for program in _running(tmp_path) if "sleep" in program])


@pytest.mark.parametrize("program", ["sleep 60; true", "trap '' TERM; sleep 60; sleep 60"])
def test_compiler_that_hangs_is_ended_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    for name, value in {"LOAD_S": 0.2, "TIMEOUT_S": 0.1, "LISTING_S": 0.0, "GRACE_S": 0.2}.items():
        monkeypatch.setattr(inquiry, name, value)
    python = _program(tmp_path / "python", f"#!/bin/sh\n{program}\n")
    fault = "the compiler did not end all of 3 within 0.4 s"
    assert _errors(Toolchain(python, "0"), "pass", "pass", "pass") == [fault] * 3
    assert not _left(tmp_path)


def test_killed_compiler_leaves_no_program_of_its_kernels(tmp_path: Path) -> None:
    killing = f"os.kill(os.getppid(), signal.SIGKILL); {SLOW}"
    assert _errors(_chain(tmp_path), killing) == ["the compiler ended with -9: "]
    assert not _running(tmp_path)


def test_whoever_stops_asking_leaves_nothing(tmp_path: Path) -> None:
    with closing(compile_requests(_requests("pass", SLOW), _chain(tmp_path))) as answers:
        assert next(answers)[0] == 0
    assert not _left(tmp_path)


def test_full_cache_is_told_at_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    late = f"time.sleep(2); Path({str(tmp_path / 'late')!r}).touch()"
    requests = dict(zip("ab", _requests("pass", late), strict=True))
    with pytest.raises(ToolchainError, match="cannot be used"):
        resources._answers(requests, _chain(tmp_path))
    assert not (tmp_path / "late").exists()
    assert not _left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_who_asks_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    _end_asking(_chain(tmp_path), f"Path({str(tmp_path / 'begun')!r}).touch(); {SLOW}", tmp_path / "begun", number)
    assert not _left(tmp_path)


def test_who_asks_may_end_before_the_compiler_can_be_told(tmp_path: Path) -> None:
    begun = f"Path({str(tmp_path / 'begun')!r}).touch(); time.sleep(0.3)"
    _end_asking(_chain(tmp_path, begun), SLOW, tmp_path / "begun", signal.SIGKILL)
    assert not _left(tmp_path)


def _end_asking(chain: Toolchain, body: str, begun: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", ASKS, str(chain.python), body]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as asking:
        assert _appears(begun)
        asking.send_signal(number)


def test_killed_kernel_leaves_no_temporary_files(tmp_path: Path) -> None:
    # As Triton's do, which it removes by hand.
    crash = "tempfile.NamedTemporaryFile(delete=False).close(); os.kill(os.getpid(), signal.SIGSEGV)"
    assert _errors(_chain(tmp_path), crash) == ["the compiler ended with -11: "]
    assert not _left(tmp_path)


def test_what_is_printed_is_no_answer_and_need_not_be_text(tmp_path: Path) -> None:
    odd = "print('stray', flush=True)\nos.write(2, b'\\xff')\n"
    assert _errors(_chain(tmp_path, odd), "print('stray', flush=True)") == ["tried"]
    (found,) = _errors(_chain(tmp_path, odd + "os._exit(5)"), "pass")
    assert found == "the compiler ended with 5: \ufffd"


def test_each_kernel_has_a_cache_of_its_own(tmp_path: Path) -> None:
    named = "answer = {'error': os.environ['TRITON_CACHE_DIR'], 'error_kind': ''}"
    one, other = _errors(_chain(tmp_path), named, named)
    assert one != other


def _counting(folder: Path) -> str:
    """A kernel that answers how many of them there are now."""
    folder.mkdir()
    count = f"now = Path({str(folder)!r}); mine = now / str(os.getpid()); mine.touch(); time.sleep(0.1)"
    return f"{count}; answer = {{'error': len(list(now.iterdir())), 'error_kind': ''}}; mine.unlink()"


def test_two_kernels_compile_at_once_and_no_more(tmp_path: Path) -> None:
    found = _errors(_chain(tmp_path), *[_counting(tmp_path / "now")] * 5)
    assert max(found) == "2"


def test_two_kernels_compile_at_once_when_two_threads_ask(tmp_path: Path) -> None:
    chain, body = _chain(tmp_path), _counting(tmp_path / "now")
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(_errors, chain, body, body, body) for _ in range(2)]
    assert max(count for one in asked for count in one.result()) == "2"
