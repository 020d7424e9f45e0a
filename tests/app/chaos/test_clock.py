from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.chaos.clock import python_under, stepped
from app.environment import ROOT

# Where a wall clock may be read: stamps that people read, names, and what is compared with a file's or a packet's.
STAMPS = {
    "app/chaos/clock.py", "app/engine/sglang/engine.py", "app/engine/sim/server.py", "app/engine/sim/streams.py",
    "app/engine/probe.py", "loadtest/client/arrival.py", "loadtest/drive/driver.py", "loadtest/drive/options.py",
}  # fmt: skip


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not() -> None:
    wall, monotonic = time.time(), time.monotonic()
    with stepped(-86_400, 0):
        assert time.time() - wall < -86_000
        assert time.time_ns() / 1e9 - wall < -86_000
        assert 0 <= time.monotonic() - monotonic < 60
    assert abs(time.time() - wall) < 60


def test_a_module_runs_under_a_clock_that_jumps(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text("from time import time\nimport sys\nprint(time(), *sys.argv[1:])\n")
    command = [*python_under(1e6, 0), "tell", "a"]
    path = f"{ROOT}:{tmp_path}"
    told = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True).stdout
    assert float(told.split()[0]) - time.time() > 9e5
    assert told.split()[1] == "a"
    assert command[0] == sys.executable


def wall_clock_calls(path: Path) -> bool:
    calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute))
    return any(c.attr in ("time", "time_ns") and isinstance(c.value, ast.Name) and c.value.id == "time" for c in calls)


@pytest.mark.parametrize("package", ["app", "loadtest"])
def test_only_stamps_are_taken_from_the_wall_clock(package: str) -> None:
    found = {str(p.relative_to(ROOT)) for p in (ROOT / package).rglob("*.py") if wall_clock_calls(p)}
    assert found - STAMPS == set()
