"""Runs a Python module under a wall clock that jumps: `python -m app.chaos.clock STEP_S AFTER_S MODULE ARGUMENTS`."""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
from collections.abc import Iterator

NS_PER_S = 1_000_000_000


@contextlib.contextmanager
def stepped(step_s: float, after_s: float) -> Iterator[None]:
    """From after_s seconds on, time.time and time.time_ns are off by step_s; the monotonic clocks are left alone."""
    real_ns, began = time.time_ns, time.monotonic()

    def jumped_ns() -> int:
        return real_ns() + (int(step_s * NS_PER_S) if time.monotonic() - began >= after_s else 0)

    kept = time.time, time.time_ns
    time.time, time.time_ns = (lambda: jumped_ns() / NS_PER_S), jumped_ns
    try:
        yield
    finally:
        time.time, time.time_ns = kept


def python_under(step_s: float, after_s: float) -> tuple[str, ...]:
    """The command that stands for `python -m`."""
    return (sys.executable, "-m", "app.chaos.clock", f"{step_s:g}", f"{after_s:g}")


def main() -> None:
    """Patches the clock before the module is imported, so that names bound at import jump too."""
    step_s, after_s, module = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    sys.argv = sys.argv[3:]
    with stepped(step_s, after_s):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
