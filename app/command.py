"""The one way out to other programs: an argument list in, exit code and text out, never an exception."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# nvidia-smi can hang for good on a card that fell off its bus.
TIMEOUT_S = 30.0
NOT_FOUND = 127
TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended; 127 for one that is not installed, 124 for one that did not end in time."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def said(self) -> str:
        """Its last line of complaint, for one line of a report."""
        lines = [line.strip() for line in f"{self.out}\n{self.err}".splitlines() if line.strip()]
        return lines[-1][:200] if lines else f"exit code {self.code}"


Runner = Callable[[Sequence[str]], Ran]


def run_command(argv: Sequence[str]) -> Ran:
    """Runs a command without a shell and without input."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Ran(TIMED_OUT, err=f"{argv[0]} did not answer within {TIMEOUT_S:.0f} s")
    except OSError as e:
        return Ran(NOT_FOUND, err=f"{argv[0]}: {e.strerror}")
    return Ran(done.returncode, done.stdout, done.stderr)


def remembering(run: Runner) -> Runner:
    """A runner that asks each question once, since several checks read the same answer."""
    answers: dict[tuple[str, ...], Ran] = {}

    def ask(argv: Sequence[str]) -> Ran:
        if tuple(argv) not in answers:
            answers[tuple(argv)] = run(argv)
        return answers[tuple(argv)]

    return ask
