from __future__ import annotations

import pytest

from app import arguments
from app.errors import UsageError
from loadtest.plan import Objectives


def test_objectives_are_limits_by_name() -> None:
    assert arguments.objectives("ttft=500, e2e=2e4") == Objectives(ttft_ms=500, e2e_ms=20_000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft=nan", "--slo ttft 'nan' is not a finite number"),
        ("ttft=inf", "--slo ttft 'inf' is not a finite number"),
        ("ttft=", "--slo ttft '' is not a number"),
        ("ttft=1,ttft=2", "--slo ttft=1,ttft=2: ttft is given twice"),
        ("tpot=5,ttft=-1", "--slo ttft=-1 is out of range; a limit is a number of ms above 0"),
        ("e2e=0", "--slo e2e=0 is out of range; a limit is a number of ms above 0"),
    ],
)
def test_objectives_that_no_request_could_be_held_to_are_named_with_their_value(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        arguments.objectives(text)
    assert str(refused.value) == says


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_no_number_is_without_end(text: str) -> None:
    with pytest.raises(UsageError, match=f"--delta '{text}' is not a finite number"):
        arguments.number(text, "delta")


@pytest.mark.parametrize("text", ["nan,5", "5", "1,2,3", ""])
def test_lengths_that_are_no_pair_are_told_with_a_pair_for_example(text: str) -> None:
    with pytest.raises(UsageError, match=f"^--lengths '{text}': .*whole numbers.* for example 1024,256$"):
        arguments.pair(text, "lengths")
