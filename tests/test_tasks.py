from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from app import errors
from app.errors import LabError

ROOT = Path(__file__).resolve().parent.parent


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_every_kind_of_error_has_an_exit_code() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, LabError) and k is not LabError]
    assert [k for k in kinds if not any(issubclass(k, kind) for kind, _ in tasks.ERROR_CODES)] == []


@pytest.mark.parametrize(
    ("decisions", "code"),
    [
        (["accept"], 0),
        (["accept", "undecided"], 8),
        (["undecided", "reject"], 7),
        (["reject", "invalid"], 9),
        (["same-code"], 8),
        ([], 0),
    ],
)
def test_a_campaign_ends_with_the_code_of_its_gravest_decision(decisions: list[str], code: int) -> None:
    assert tasks.gravest(decisions) == code


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("diff", "--variant", "v9"), 2, "unknown variant 'v9'; known: aa, baseline"),
        (("compare", "--variants", "v1", "--concurrency", "0,8"), 2, "concurrency 0"),
        (("compare", "--variants", "v1", "--concurrency", "8,1"), 2, "must rise without repeats: 1,8"),
        (("compare", "--variants", "v1", "--concurrency", ","), 2, "no concurrency given"),
        (("compare", "--variants", ""), 2, "no variants given"),
        (("compare", "--variants", "v1", "--slo", "ttft:500"), 2, "for example ttft=500"),
        (("compare", "--import", "nowhere"), 2, "nowhere does not exist; give the folder that holds"),
        (("compare", "--variants", "v1,v1"), 2, "a name is given twice"),
        (("compare", "--variants", "v1", "--blocks", "1"), 2, "from 2 to 10,000"),
        (("compare", "--variants", "v1", "--runtime", "podman"), 2, "known: docker, local"),
        (("compare", "--resume", "never-run"), 2, "unknown campaign 'never-run'"),
        (("promote", "--variant", "nope"), 2, "unknown variant 'nope'; known: aa, baseline"),
        (("check", "--variant", "v1", "--triton", "; rm"), 2, "'; rm' is no Triton version; write for example 3.6.0"),
        (("report", "--id", "../etc"), 2, "campaign id"),
        (("check", "--variant", "v1", "--arch", "sm_90"), 2, "lab: --arch 'sm_90' is no whole number, such as 120"),
        (("compare", "--blocks", "four"), 2, "lab: --blocks 'four' is no whole number, such as 8"),
        (("plan", "--sd", "1", "--start-s", "nan"), 2, "lab: --start-s 'nan' is no whole number, such as 60"),
        (("compare", "--variants", "v1", "--seed", "four"), 2, "lab: --seed 'four' is not a whole number"),
    ],
)
def test_a_wrong_request_ends_with_one_line_and_its_code(arguments: tuple[str, ...], code: int, says: str) -> None:
    ended = lab(*arguments)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, 1)
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


REFUSED = """
import sys
from app.program import main

try:
    main(sys.argv[1:])
finally:
    print(*sorted({"scipy", "pyarrow", "jinja2", "gevent"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "options",
    [
        ("--variants", "v9"),
        ("--variants", "v1", "--blocks", "1"),
        ("--variants", "v1", "--concurrency", "5000"),
        ("--variants", "v1", "--calibration", "nowhere"),
        ("--resume", "never-run"),
        ("--import", "nowhere"),
    ],
)
def test_what_compare_refuses_loads_no_statistics_and_no_charts(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", REFUSED, "compare", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode in (2, 6), ended.stdout) == (True, "\n")


def test_a_diff_says_which_file_a_whole_replacement_takes_the_place_of() -> None:
    ended = lab("diff", "--variant", "v2")
    assert ended.returncode == 0
    assert ended.stdout.startswith("# v2 replaces the whole of ")
    assert " by kernels/sparse_mla_decode.py, in which it changes:" in ended.stdout
