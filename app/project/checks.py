"""The whole test command: lint, types, clones and tests; all that this machine can run, a reason for what it cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile

from app.environment import ROOT, ensure

CHECKS = (
    ("lint", ("-m", "ruff", "check", "--quiet", ".")),
    ("format", ("-m", "ruff", "format", "--check", "--quiet", ".")),
    ("types", ("-m", "mypy")),
    ("clones", ("-m", "pylint", "app", "kernels", "loadtest", "tests", "tasks.py")),
)
PYTEST = (sys.executable, "-m", "pytest", "-q", "--durations=20")
# These compute, for minutes and against no clock.
COMPUTING = (
    "tests/app/engine/sglang/test_prebuilt.py",
    "tests/app/gate",
    "tests/app/kernel",
    "tests/app/test_worked_example.py",
    "tests/fuzz",
    "tests/kernels",
    "tests/loadtest/judge",
)
# These wait, for a daemon or a browser, and hold nothing against a time that other work would change.
WAITING = ("tests/browser", "tests/docker")


def run_checks(select: str = "") -> int:
    """Runs the checks, then pytest, and returns an exit code; `select` runs the tests of matching name alone."""
    ensure("test", "torch")
    if select:
        return subprocess.run([*PYTEST, "-k", select], cwd=ROOT).returncode
    return _failed_checks() or run_tests()


def run_tests() -> int:
    """All tests, in three parts: those that compute beside those that wait, then the others with nothing beside them.

    Returns an exit code; a part that failed is named once more at the end.
    """
    waiting, computing = _beside()
    others = _pytest("tests", *(f"--ignore={place}" for place in (*COMPUTING, *WAITING)))
    codes = {" ".join(WAITING): waiting, " ".join(COMPUTING): computing, "the other tests": others}
    for name in (name for name, code in codes.items() if code):
        print(f"failed: {name}; see above", file=sys.stderr)
    return waiting or computing or others


def _beside() -> tuple[int, int]:
    with tempfile.TemporaryFile() as said:
        # One of the two writes the record of what failed last; at a terminal the slow part's is worth more.
        command = ["nice", "-n", "19", *PYTEST, "-p", "no:cacheprovider", *COMPUTING]
        with subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT) as computing:
            waiting = _pytest(*WAITING)
        said.seek(0)
        shutil.copyfileobj(said, sys.stdout.buffer)
        sys.stdout.flush()
    return waiting, computing.returncode


def _pytest(*arguments: str) -> int:
    return subprocess.run([*PYTEST, *arguments], cwd=ROOT).returncode


def _failed_checks() -> int:
    # Side by side: types and clones take most of the time, and one core each.
    running = [(name, a, subprocess.Popen([sys.executable, *a], cwd=ROOT)) for name, a in CHECKS]
    failed = [(name, a) for name, a, process in running if process.wait() != 0]
    for name, arguments in failed:
        print(f"{name} failed: python {' '.join(arguments)}", file=sys.stderr)
    return 1 if failed else 0
