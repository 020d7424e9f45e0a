"""The whole test command: lint, types, clones and tests; all that this machine can run, a reason for what it cannot."""

from __future__ import annotations

import subprocess
import sys

from app.environment import ROOT, ensure

CHECKS = (
    ("lint", ("-m", "ruff", "check", "--quiet", ".")),
    ("format", ("-m", "ruff", "format", "--check", "--quiet", ".")),
    ("types", ("-m", "mypy")),
    ("clones", ("-m", "pylint", "app", "kernels", "loadtest", "tests", "tasks.py")),
)


def run_checks(select: str = "") -> int:
    """Runs the checks, then pytest, and returns an exit code; `select` runs the tests of matching name alone."""
    ensure("test", "torch")
    if not select and (failed := _failed_checks()):
        return failed
    tests = ("-m", "pytest", "-q", "--durations=20", *(("-k", select) if select else ()))
    return subprocess.run([sys.executable, *tests], cwd=ROOT).returncode


def _failed_checks() -> int:
    # Side by side: types and clones take most of the time, and one core each.
    running = [(name, a, subprocess.Popen([sys.executable, *a], cwd=ROOT)) for name, a in CHECKS]
    failed = [(name, a) for name, a, process in running if process.wait() != 0]
    for name, arguments in failed:
        print(f"{name} failed: python {' '.join(arguments)}", file=sys.stderr)
    return 1 if failed else 0
