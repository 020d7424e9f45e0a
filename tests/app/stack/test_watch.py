from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.errors import NotReadyError, ProofError
from app.stack.watch import LOOK_EVERY_S, ROUTER_PATIENCE_S, Watch
from tests.app.fake_stack import FakeStack


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    with FakeStack() as made:
        yield made


@pytest.fixture
def clock() -> Hands:
    return Hands()


def later(watch: Watch, clock: Hands, seconds: float = LOOK_EVERY_S) -> str:
    clock.now_s += seconds
    return watch()


def test_a_stack_that_serves_is_no_fault(stack: FakeStack, clock: Hands) -> None:
    watch = Watch(stack, stack.endpoints.router_url, clock)
    assert [later(watch, clock) for _ in range(3)] == ["", "", ""]


def test_a_service_that_ended_is_named_with_its_last_words(stack: FakeStack, clock: Hands) -> None:
    watch = Watch(stack, stack.endpoints.router_url, clock)
    stack.dead, stack.words = ["decode"], ["CUDA out of memory"]
    assert later(watch, clock) == "decode ended during the load; last words: CUDA out of memory"


def test_a_service_is_named_with_the_exception_that_its_launcher_talked_after(stack: FakeStack, clock: Hands) -> None:
    stack.dead, stack.words = ["decode"], ["RuntimeError: out of memory", "Child died", "Killing all", "Bye"]
    told = later(Watch(stack, stack.endpoints.router_url, clock), clock)
    assert told.endswith("last words: RuntimeError: out of memory")


def test_a_router_may_miss_a_look_but_not_for_long(stack: FakeStack, clock: Hands) -> None:
    watch = Watch(stack, "http://127.0.0.1:9", clock)
    assert later(watch, clock, ROUTER_PATIENCE_S - 1) == ""
    assert "router did not say it is ready" in later(watch, clock, 2)


def test_a_router_that_serves_again_starts_anew(stack: FakeStack, clock: Hands) -> None:
    watch = Watch(stack, "http://127.0.0.1:9", clock)
    assert later(watch, clock, ROUTER_PATIENCE_S - 1) == ""
    watch.router_url = stack.endpoints.router_url
    assert later(watch, clock) == ""
    watch.router_url = "http://127.0.0.1:9"
    assert later(watch, clock, 2) == ""


def test_looks_are_not_taken_more_often_than_they_cost(stack: FakeStack, clock: Hands) -> None:
    watch = Watch(stack, stack.endpoints.router_url, clock)
    stack.dead = ["router"]
    assert later(watch, clock, LOOK_EVERY_S / 2) == ""
    assert "router ended" in later(watch, clock, LOOK_EVERY_S / 2)


def test_a_question_is_given_up_when_who_should_answer_has_ended(stack: FakeStack) -> None:
    stack.dead, stack.words = ["router"], ["Killed"]
    never = threading.Event()
    with pytest.raises(NotReadyError, match=r"^router ended at the canary; last words: Killed$"):
        Watch(stack, "").over(lambda: never.wait(10), "at the canary")


def test_an_answer_spoiled_by_a_death_names_the_dead(stack: FakeStack) -> None:
    def ask() -> None:
        threading.Timer(0.2, stack.dead.append, ["decode"]).start()
        raise ProofError("decode: said nothing")

    with pytest.raises(NotReadyError, match="decode ended at the proof"):
        Watch(stack, "").over(ask, "at the proof")


def test_an_answer_of_the_living_is_passed_on_as_it_is(stack: FakeStack) -> None:
    def lie() -> None:
        raise ProofError("another kernel")

    assert Watch(stack, "").over(lambda: 4, "at the canary") == 4
    with pytest.raises(ProofError, match="another kernel"):
        Watch(stack, "").over(lie, "at the proof")
