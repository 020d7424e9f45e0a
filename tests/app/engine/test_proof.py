from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.probe import send_canary
from app.engine.proof import check_proof, read_proof
from app.errors import NotReadyError, ProofError
from app.kernel.placed import PlacedKernel
from tests.app.fake_stack import FakeStack

KERNEL = PlacedKernel("v1", "triton", Path("kernel.py"), "ab" * 32, "cd" * 32, "_kernel")


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    with FakeStack() as made:
        made.switch(KERNEL, "start")
        yield made


def test_a_service_that_runs_what_was_placed_is_proved(stack: FakeStack) -> None:
    assert check_proof(read_proof(stack.endpoints), KERNEL).config == "(16,4,2)"


@pytest.mark.parametrize(("field", "value"), [("kernel_sha256", "00"), ("selector", "flashinfer"), ("variant", "v2")])
def test_a_service_that_runs_something_else_is_refused(stack: FakeStack, field: str, value: str) -> None:
    stack.lies = {field: value}
    with pytest.raises(ProofError, match=f"{field} is '{value}'"):
        check_proof(read_proof(stack.endpoints), KERNEL)


def test_a_service_not_started_by_the_lab_is_refused(stack: FakeStack) -> None:
    stack.info = dict  # type: ignore[method-assign]
    with pytest.raises(ProofError, match="names no kernel"):
        read_proof(stack.endpoints)


def test_a_canary_that_moves_decodes_counter_passes(stack: FakeStack) -> None:
    assert send_canary(stack.endpoints).decode_tokens_moved == 4


def test_a_canary_answered_without_decode_is_refused(stack: FakeStack) -> None:
    stack.silent = True
    with pytest.raises(NotReadyError, match="did not move"):
        send_canary(stack.endpoints, counter_s=0.3)


def test_a_canary_answered_without_text_is_refused_before_the_counter_is_waited_for(stack: FakeStack) -> None:
    stack.silent, stack.said, began = True, "", time.monotonic()
    with pytest.raises(NotReadyError, match="canary: 4 of 4 tokens, text ''"):
        send_canary(stack.endpoints, counter_s=15.0)
    assert time.monotonic() - began < 10


def test_a_canary_answered_by_another_model_is_refused(stack: FakeStack) -> None:
    stack.model = "wanted"
    with pytest.raises(NotReadyError, match="served model is 'fake', not 'wanted'"):
        send_canary(stack.endpoints)
