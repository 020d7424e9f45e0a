"""Never more than C in flight, every prompt's address the same whoever carries it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import pytest

from loadtest.client.slots import Lease, Slots, first_output_tokens


@contextmanager
def users(slots: Slots, count: int, hold_s: float = 0.002) -> Iterator[list[tuple[int, int, Lease]]]:
    """Runs users against the slots; yields (in flight, level, lease) at each admission."""
    seen: list[tuple[int, int, Lease]] = []

    def use() -> None:
        while (lease := slots.acquire()) is not None:
            seen.append((slots.in_flight, slots.concurrency, lease))
            gevent.sleep(hold_s)
            slots.release(lease.slot)

    greenlets = [gevent.spawn(use) for _ in range(count)]
    yield seen
    slots.close()
    gevent.joinall(greenlets, timeout=5, raise_error=True)
    assert all(g.ready() for g in greenlets)


@pytest.mark.parametrize("levels", [(2, 5, 9), (9, 2, 5), (1, 9, 1)])
def test_in_flight_never_exceeds_the_level_or_what_was_left_of_the_last(levels: tuple[int, ...]) -> None:
    slots = Slots()
    with users(slots, 9) as seen:
        for level in levels:
            slots.set_level(level)
            gevent.sleep(0.05)
    assert all(in_flight <= max(level, lease.concurrency) for in_flight, level, lease in seen)
    assert {lease.concurrency for *_, lease in seen} == set(levels)


def test_every_slot_of_a_level_gets_its_sequence_from_zero() -> None:
    slots = Slots()
    with users(slots, 4) as seen:
        slots.set_level(4)
        gevent.sleep(0.05)
    for slot in range(4):
        sequences = [lease.sequence for *_, lease in seen if lease.slot == slot]
        assert sequences == list(range(len(sequences)))


def test_only_the_first_request_of_an_empty_slot_is_fresh() -> None:
    slots = Slots()
    with users(slots, 4) as seen:
        slots.set_level(2)
        gevent.sleep(0.02)
        slots.set_level(4)
        gevent.sleep(0.02)
    fresh = [(lease.concurrency, lease.slot) for *_, lease in seen if lease.fresh]
    assert sorted(fresh) == [(2, 0), (2, 1), (4, 2), (4, 3)]


def test_waiting_users_are_sent_home_at_the_end() -> None:
    slots = Slots()
    waiting = gevent.spawn(slots.acquire)
    gevent.sleep(0)
    slots.close()
    assert waiting.get(timeout=1) is None
    assert slots.acquire() is None


def test_first_outputs_are_spread_evenly_over_one_output() -> None:
    lengths = [first_output_tokens("s", 8, slot, 256) for slot in range(8)]
    assert sorted(lengths) == list(range(32, 257, 32))
    assert lengths != sorted(lengths)


def test_a_single_user_starts_with_a_whole_output() -> None:
    assert first_output_tokens("s", 1, 0, 256) == 256


def test_no_first_output_is_empty() -> None:
    assert min(first_output_tokens("s", 96, slot, 4) for slot in range(96)) == 1
