from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine.sglang.logprobs import Answered, apart
from app.engine.sglang.logprobs import compare as compare_answers
from app.engine.sglang.outputs import Outputs, compare, difference
from app.errors import ProofError

RNG = np.random.default_rng(0)
BASE: NDArray[np.float32] = RNG.standard_normal((8, 1, 16, 512), dtype=np.float32)


def outputs(values: NDArray[np.float32], again: NDArray[np.float32] | None = None) -> Outputs:
    return Outputs("ab", "attention", {"128+0": values}, {"128+0": values if again is None else again})


def test_the_difference_is_of_the_norm_and_of_the_worst_head() -> None:
    changed = BASE.copy()
    changed[3, 0, 5] *= 1.5
    found = difference({"a": changed}, {"a": BASE})
    assert found.worst_head == pytest.approx(0.5)
    assert found.relative == pytest.approx(0.5 / math.sqrt(128), rel=0.1)


@pytest.mark.parametrize(
    "other", [{"a": BASE[:4]}, {"b": BASE}, {"a": np.full_like(BASE, np.nan)}, {"a": np.full_like(BASE, np.inf)}]
)
def test_what_cannot_be_compared_is_infinitely_far(other: Mapping[str, Any]) -> None:
    assert difference(other, {"a": BASE}).relative == math.inf


def test_heads_without_output_agree_with_each_other() -> None:
    zeros = np.zeros_like(BASE)
    assert difference({"a": zeros}, {"a": zeros}).worst_head == 0


def test_one_wrong_head_of_one_request_is_no_proof() -> None:
    wrong = BASE.copy()
    wrong[0, 0, 0] *= 1.06
    with pytest.raises(ProofError, match=r"v1's attention differs from pinned's .* 0\.06 in the worst head"):
        compare("v1", "pinned", {"pinned": [outputs(BASE)], "v1": [outputs(wrong)]})


def test_a_control_that_does_not_repeat_itself_is_no_control() -> None:
    runs = {"pinned": [outputs(BASE, BASE * np.float32(1.02))], "v1": [outputs(BASE)]}
    with pytest.raises(ProofError, match=r"pinned's attention differs from itself .* by 0\.02 "):
        compare("v1", "pinned", runs)


def test_a_controls_other_start_counts_against_it() -> None:
    runs = {"pinned": [outputs(BASE), outputs(BASE * np.float32(1.004))], "v1": [outputs(BASE)]}
    found = compare("v1", "pinned", runs)
    assert (found["control_starts"], found["relative"]) == (2, 0.0)
    assert found["control_relative"] == pytest.approx(0.004, rel=0.01)


def said(*tokens: str, nats: float = 0.0) -> Answered:
    return Answered(tokens, tuple({t: -1.0 + nats * place, "else": -2.0} for place, t in enumerate(tokens)))


def test_log_probabilities_are_compared_until_the_answers_part() -> None:
    found = apart([said("a", "b", "x", "d")], [said("a", "b", "c", "d", nats=0.25)])
    assert (found.nats, found.places) == (0.25, 3)


def test_the_alarm_is_for_more_than_the_controls_own_difference() -> None:
    answers = {"pinned": [[said("a", "b")], [said("a", "b", nats=0.1)]], "v1": [[said("a", "b", nats=0.2)]]}
    assert not compare_answers("v1", "pinned", answers)["alarm"]
    assert compare_answers("v1", "pinned", answers | {"v1": [[said("a", "b", nats=0.5)]]})["alarm"]
