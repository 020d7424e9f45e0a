"""The kernel's logic, run in Triton's interpreter, against float64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from kernels.sparse_mla_decode import Choice, split_count

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]
AGREEING = (
    "plain", "two caches, sinks of all kinds, ragged", "the same in splits", "the same merged apart", "leading holes",
    "inner holes", "trailing holes", "all holes", "no tokens", "garbage past the lengths", "page of 256 beside 64",
    "one entry, one head", "seventeen entries, eight heads", "133 entries, 24 heads", "sink in the LSE", "tile of 32",
    "scale codes", "many splits", "tuned choice",
)  # fmt: skip
UNCHANGED = ("slot zero", "strided pages", "narrowed extra indices", "guard heads", "wrong slots", "many splits")

Findings = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def findings() -> Findings:
    """What the interpreter found for every case, in one process."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.interpreted"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: Findings = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("case", AGREEING)
def test_logic_agrees_with_float64(case: str, findings: Findings) -> None:
    found = findings[case]
    assert found["error"] < 1e-6
    assert found["lse_error"] < 1e-5
    assert found["infinities"]


@pytest.mark.parametrize("case", UNCHANGED)
def test_what_no_index_names_changes_no_bit(case: str, findings: Findings) -> None:
    assert findings[case]["same"]


def test_heads_beside_a_view_are_not_written(findings: Findings) -> None:
    assert findings["guard heads"]["guards"]


def test_scale_code_255_makes_nan(findings: Findings) -> None:
    assert findings["scale codes"]["nan"]


def test_entry_point_gives_sglang_its_shapes_and_the_lse_with_the_sink(findings: Findings) -> None:
    found = findings["entry point"]
    assert found["shape"] == [2, 1, 16, 512, 2, 16, 1]
    assert found["lse_error"] < 1e-5
    # The interpreter cuts bf16 off where a GPU rounds.
    assert found["error"] < 8e-3


def test_heads_that_only_fill_a_rank_are_not_attended_to(findings: Findings) -> None:
    assert findings["filled up"] == {"same": True, "shape": [2, 1, 64, 512], "without_ranks": 64}


def test_first_row_of_the_table_that_fits_rules(findings: Findings) -> None:
    assert findings["tuned choice"]["chosen"] == list(Choice(16, 4, 1, 2, 0, "apart"))


@pytest.mark.parametrize(
    ("pairs", "tokens", "programs", "splits"),
    [
        (1, 512, 132, 32),
        (96, 512, 396, 4),
        (512, 512, 264, 1),
        (96, 2048, 264, 8),
        (1, 16, 264, 1),
        (20_000, 4096, 264, 1),
    ],
)
def test_splits_fill_the_programs_and_cut_long_lists(pairs: int, tokens: int, programs: int, splits: int) -> None:
    assert split_count(pairs, tokens, programs) == splits
