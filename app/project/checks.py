"""The whole test command: lint, types, clones and tests; all that this machine can run, a reason for what it cannot."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from app.environment import ROOT, ensure
from app.errors import UsageError

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
# These hold what they see against a clock, or measure in real time.
TIMED = (
    "tests/app/bench_client",
    "tests/app/campaign/test_load.py",
    "tests/app/chaos",
    "tests/app/console/test_completion.py",
    "tests/app/engine/test_sim_mock.py",
    "tests/app/engine/test_sim_pd.py",
    "tests/app/engine/test_sim_precision.py",
    "tests/app/engine/test_sim_server.py",
    "tests/app/report/test_large_campaign.py",
    "tests/app/test_key.py",
    "tests/loadtest/client",
    "tests/loadtest/test_locustfile.py",
    "tests/test_quick_answer.py",
    "tests/test_verdict_follows_truth.py",
)


def run_checks(select: str = "") -> int:
    """Runs the checks, then pytest, and returns an exit code; `select` runs the tests of matching name alone."""
    if select:
        _require_readable(select)
    ensure("test", "torch")
    if select:
        return subprocess.run([*PYTEST, "-k", select], cwd=ROOT).returncode
    return _failed_checks() or run_tests()


def run_tests() -> int:
    """All tests, in four parts: the timed last and alone, the others before them, side by side.

    Returns an exit code; a part that failed is named once more at the end.
    """
    ignored = [f"--ignore={place}" for place in (*COMPUTING, *WAITING, *TIMED)]
    with ExitStack() as running:
        computing = running.enter_context(_beside(*COMPUTING))
        others = running.enter_context(_beside("tests", *ignored))
        waiting = _pytest(*WAITING)
    codes = {" ".join(WAITING): waiting, " ".join(COMPUTING): computing.returncode}
    codes |= {"the other tests": others.returncode, "the timed tests": _pytest(*TIMED)}
    for name in (name for name, code in codes.items() if code):
        print(f"failed: {name}; see above", file=sys.stderr)
    return next((code for code in codes.values() if code), 0)


@contextmanager
def _beside(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Pytest beside the body of the block, which it may outlive; what it says is shown when it has ended."""
    with tempfile.TemporaryFile() as said:
        # Below the daemon's work, and all alike: starved of it, services would not start in time. What runs in front
        # writes the record of what failed last; at a terminal the slow part's is worth more.
        command = ["nice", "-n", "10", *PYTEST, "-p", "no:cacheprovider", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT) as running:
            yield running
        said.seek(0)
        shutil.copyfileobj(said, sys.stdout.buffer)
        sys.stdout.flush()


def _pytest(*arguments: str) -> int:
    return subprocess.run([*PYTEST, *arguments], cwd=ROOT).returncode


def _require_readable(select: str) -> None:
    """UsageError where pytest could not read it: its own reader is installed only afterwards."""
    words = ("and", "or", "not")
    as_python = re.sub(r"[\w:+.\[\]\\/-]+", lambda m: m[0] if m[0] in words else "_", select)
    try:
        if re.search(r"[^ \t\w()]|_\s*\(|\(\s*\)", as_python):
            raise SyntaxError
        ast.parse(as_python.strip(), mode="eval")
    except SyntaxError as e:
        raise UsageError(f"--select {select!r} is no pytest expression, such as 'stats and not power'") from e


def _failed_checks() -> int:
    # Side by side: types and clones take most of the time, and one core each.
    running = [(name, a, subprocess.Popen([sys.executable, *a], cwd=ROOT)) for name, a in CHECKS]
    failed = [(name, a) for name, a, process in running if process.wait() != 0]
    for name, arguments in failed:
        print(f"{name} failed: python {' '.join(arguments)}", file=sys.stderr)
    return 1 if failed else 0
