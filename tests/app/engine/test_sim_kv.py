from __future__ import annotations

from app.engine.sim.kv import PagedKv


def prompt(name: str, tokens: int) -> tuple[str, ...]:
    return tuple(f"{name}{i}" for i in range(tokens))


def test_memory_refuses_what_does_not_fit_and_takes_nothing() -> None:
    kv = PagedKv(100, 10)
    assert kv.take(8)
    assert not kv.take(3)
    assert kv.used == 8


def test_tokens_take_whole_pages() -> None:
    kv = PagedKv(100, 10)
    assert [kv.pages_for(n) for n in (1, 10, 11)] == [1, 1, 2]


def test_prefix_is_found_in_whole_pages_and_never_to_the_last_token() -> None:
    kv = PagedKv(1000, 10)
    kv.remember(prompt("a", 40))
    assert kv.match(prompt("a", 40)) == 30
    assert kv.match(prompt("a", 45)) == 40
    assert kv.match((*prompt("a", 15), *prompt("b", 15))) == 10
    assert kv.match(prompt("b", 40)) == 0


def test_hit_rate_counts_tokens_looked_up() -> None:
    kv = PagedKv(1000, 10)
    kv.match(prompt("a", 40))
    kv.remember(prompt("a", 40))
    kv.match(prompt("a", 40))
    assert kv.hit_rate == 30 / 80


def test_cached_pages_make_way_for_requests_oldest_first() -> None:
    kv = PagedKv(100, 10)
    kv.remember(prompt("old", 40))
    kv.remember(prompt("new", 40))
    assert kv.take(6)
    assert kv.cached == 4
    assert kv.match(prompt("old", 41)) == 0
    assert kv.match(prompt("new", 41)) == 40


def test_flush_forgets_prefixes_and_statistics() -> None:
    kv = PagedKv(100, 10)
    kv.remember(prompt("a", 40))
    kv.match(prompt("a", 40))
    kv.forget()
    assert (kv.cached, kv.hit_rate, kv.match(prompt("a", 40))) == (0, 0.0, 0)
