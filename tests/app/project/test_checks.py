"""The parts that the whole test command runs its tests in, with a stand-in for pytest."""

from __future__ import annotations

import sys

import pytest
from _pytest.mark.expression import Expression

from app.environment import ROOT
from app.errors import UsageError
from app.project import checks

# Says its last line when it is about to end, and fails where it is told to.
STANDIN = """
import sys
print("begun", *sys.argv[2:], flush=True)
print("ended", *sys.argv[2:], flush=True)
sys.exit(sys.argv[1] in sys.argv[2:])
"""


def parts(monkeypatch: pytest.MonkeyPatch, failing: str = "none") -> int:
    monkeypatch.setattr(checks, "PYTEST", (sys.executable, "-c", STANDIN, failing))
    return checks.run_tests()


def test_each_place_of_tests_is_there_in_one_part_and_left_out_of_the_rest(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert parts(monkeypatch) == 0
    begun = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("begun")]
    (rest,) = [line for line in begun if "tests" in line]
    for place in (*checks.COMPUTING, *checks.WAITING, *checks.TIMED):
        assert (ROOT / place).exists(), place
        assert [place in line for line in begun].count(True) == 1, place
        assert f"--ignore={place}" in rest, place


def test_nothing_runs_beside_the_timed_tests(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert parts(monkeypatch) == 0
    *before, begun, ended = capfd.readouterr().out.splitlines()
    assert (begun, ended) == (f"begun {' '.join(checks.TIMED)}", f"ended {' '.join(checks.TIMED)}")
    assert len(before) == 6


@pytest.mark.parametrize(
    ("failing", "named"),
    [("tests/docker", "docker"), ("tests/fuzz", "fuzz"), ("tests", "other"), ("tests/app/chaos", "timed")],
)
def test_one_part_that_fails_fails_the_command_and_is_named_after_all_output(
    failing: str, named: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert parts(monkeypatch, failing) == 1
    said = capfd.readouterr()
    assert said.out.count("begun") == said.out.count("ended") == 4
    assert named in said.err


@pytest.mark.parametrize("select", ["((", "a b", "a and", "()", "a(b)", "a;b", "not", "a, b", "a = 1", " ", "a\nb"])
def test_an_expression_that_pytest_cannot_read_is_refused_before_anything_is_installed(
    select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "ensure", lambda *_: pytest.fail("it went on"))
    with pytest.raises(UsageError, match="is no pytest expression"):
        checks.run_checks(select)


@pytest.mark.parametrize(
    "select", ["stats", "not stats", "not(a or b) and order", "test_x[1-2]", "a.py::b/c", "True or None", "for"]
)
def test_an_expression_that_pytest_reads_is_run(
    select: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Expression.compile(select)
    monkeypatch.setattr(checks, "PYTEST", (sys.executable, "-c", STANDIN, "none"))
    assert checks.run_checks(select) == 0
    assert f"begun -k {select}" in capfd.readouterr().out
