from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadtest.cells import Cell
from loadtest.judge.facts import Facts
from loadtest.judge.modes import shared_losses
from loadtest.judge.slow_blocks import slow_blocks
from loadtest.judge.verdict import judge
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Plan

PLAN = Plan(7, {"v1": "pinned", "v2": "pinned"}, (1, 48, 64), 4)


def quiet(plan: Plan = PLAN) -> list[Cell]:
    return simulate(plan, {}, Noise("quiet", 0.001, 0.001), 1, np.random.default_rng(3)).cells(0)


def slowed(cells: list[Cell], *variants: str, block: int = 3, levels: tuple[int, ...] = (48,)) -> list[Cell]:
    def rate(c: Cell) -> float:
        slow = c.block == block and c.concurrency in levels and c.variant in variants
        return c.tokens_per_s * (0.95 if slow else 1)

    return [replace(c, tokens_per_s=rate(c)) for c in cells]


def test_a_block_slow_in_every_start_is_found_at_its_concurrencies_with_its_loss() -> None:
    found = slow_blocks(PLAN, slowed(quiet(), "pinned", "v1", "v2", levels=(48, 64)))
    assert [(b.block, b.concurrency, b.variants) for b in found] == [(3, c, ("pinned", "v1", "v2")) for c in (48, 64)]
    assert [b.slower_pct for b in found] == pytest.approx([5, 5], abs=0.5)


def test_a_block_slow_in_one_pair_alone_is_found_of_that_pair() -> None:
    (found,) = slow_blocks(PLAN, slowed(quiet(), "pinned", "v2"))
    assert found.variants == ("pinned", "v2")


@pytest.mark.parametrize("variants", [(), ("v1",), ("pinned",)])
def test_a_quiet_campaign_and_one_slow_in_one_arm_alone_have_no_slow_block(variants: tuple[str, ...]) -> None:
    assert slow_blocks(PLAN, slowed(quiet(), *variants)) == ()


def test_what_is_said_is_the_least_that_any_start_of_the_block_is_behind() -> None:
    cells = slowed(quiet(), "pinned", "v1", "v2")
    fastest = {v: max(c.tokens_per_s for c in cells if c.variant == v and c.concurrency == 48) for v in PLAN.variants}
    behind = [c.tokens_per_s / fastest[c.variant] for c in cells if c.block == 3 and c.concurrency == 48]
    assert [b.slower_pct for b in slow_blocks(PLAN, cells)] == pytest.approx([100 * (1 - max(behind))])


def test_fewer_blocks_than_a_verdict_needs_name_none() -> None:
    few = replace(PLAN, blocks=3)
    assert slow_blocks(few, slowed(quiet(few), "pinned", "v1", "v2", block=2)) == ()
    assert slow_blocks(PLAN, []) == ()


def test_effects_do_not_change_with_a_loss_that_all_starts_of_a_block_share() -> None:
    plan = replace(PLAN, controls={"v1": "pinned"})
    facts = Facts("quiet", simulated=True)
    alone, shared = (judge(plan, cells, facts) for cells in (quiet(plan), slowed(quiet(plan), "pinned", "v1")))
    assert [x.effect_pct for x in alone.variants[0].levels] == pytest.approx(
        [x.effect_pct for x in shared.variants[0].levels]
    )


# Student's t of so many degrees of freedom.
GAUSSIAN = 1e9


@pytest.mark.parametrize(
    ("freedom", "blocks", "repeats", "least", "most"),
    [
        (GAUSSIAN, 4, 1, 0.03, 0.05),
        (GAUSSIAN, 8, 1, 0.005, 0.015),
        (GAUSSIAN, 4, 2, 0.0, 0.002),
        (3, 4, 1, 0.045, 0.065),
        (3, 8, 1, 0.045, 0.065),
        (3, 4, 2, 0.0, 0.004),
    ],
)
def test_chance_alone_names_a_slow_block_as_often_as_the_page_says(
    freedom: float, blocks: int, repeats: int, least: float, most: float
) -> None:
    rates = 0.005 * np.random.default_rng(0).standard_t(freedom, (8000, blocks, 2, repeats, 6))
    assert least <= (shared_losses(rates) > 0).any(axis=(1, 2)).mean() < most
