"""The whole test command: lint, types, tests; everything this machine can run, with a reason for what it cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from app.environment import ROOT, ensure

CHECKS = (
    ("lint", ("-m", "ruff", "check", "--quiet", ".")),
    ("format", ("-m", "ruff", "format", "--check", "--quiet", ".")),
    ("types", ("-m", "mypy")),
)


def run_checks(select: str = "") -> int:
    """Runs lint, types and pytest and returns an exit code; `select` runs the tests of matching name alone."""
    ensure("test", "torch")
    for name, arguments in () if select else CHECKS:
        if _python(arguments) != 0:
            print(f"{name} failed: python {' '.join(arguments)}", file=sys.stderr)
            return 1
    return _python(("-m", "pytest", "-q", "--durations=20", *(("-k", select) if select else ())))


def _python(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode
