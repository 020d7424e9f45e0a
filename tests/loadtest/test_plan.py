from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from app.errors import InvalidCampaignError, UsageError
from loadtest.plan import Lengths, Objectives, Plan, WindowRules, check_concurrencies

PLAN = Plan(seed=7, controls={"v1": "pinned", "v2": "pinned"}, concurrencies=(1, 8, 96), blocks=6)


def names(plan: Plan, block: int) -> list[str]:
    return [s.variant for s in plan.starts(block)]


def test_a_plan_comes_back_from_its_json_unchanged() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


def test_a_plan_with_objectives_comes_back_and_one_without_keeps_its_digest() -> None:
    plan = replace(PLAN, objectives=Objectives(ttft_ms=500, tpot_ms=50))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.sha256() != PLAN.sha256()
    assert "objectives" not in PLAN.to_json()


def test_a_plan_of_decode_alone_comes_back_and_any_other_keeps_its_digest() -> None:
    plan = replace(PLAN, window=WindowRules(decode_only=True))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.sha256() != PLAN.sha256()
    assert "decode_only" not in PLAN.to_json()["window"]


def test_a_plan_of_an_import_keeps_no_seed_and_no_window_and_comes_back() -> None:
    plan = replace(PLAN, seed=0, imported=True)
    assert not {"seed", "window"} & plan.to_json().keys()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert "imported" not in PLAN.to_json()


@pytest.mark.parametrize("field", ["seed", "window"])
def test_a_plan_to_measure_by_without_seed_or_window_is_refused(field: str) -> None:
    with pytest.raises(InvalidCampaignError, match=f"makes no plan.*{field}.*it was changed"):
        Plan.from_json({k: v for k, v in PLAN.to_json().items() if k != field})


def test_decode_alone_has_no_objectives() -> None:
    with pytest.raises(UsageError, match="no answer ends"):
        replace(PLAN, window=WindowRules(decode_only=True), objectives=Objectives(ttft_ms=500))


def test_a_window_of_no_length_is_refused_and_settling_of_none_is_not() -> None:
    assert WindowRules(settle_s=0, fill_timeout_s=0).window_s == 60
    with pytest.raises(UsageError, match="a window of 0 s measures nothing"):
        WindowRules(window_s=0)


@pytest.mark.parametrize(
    ("rules", "says"),
    [({"settle_s": -1.0}, "settle -1 s"), ({"window_s": math.inf}, "window inf s"), ({"window_s": math.nan}, "nan s")],
)
def test_a_wait_out_of_range_is_named_with_its_value(rules: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError, match=f"{says} is out of range; it is a number of seconds from 0$"):
        WindowRules(**rules)  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompt", "output"), [(999_999_999, 9), (9, 999_999_999)])
def test_lengths_beyond_any_context_are_refused(prompt: int, output: int) -> None:
    with pytest.raises(UsageError, match=f"lengths {prompt},{output} are beyond any context; at most 1,048,576 each"):
        Lengths(prompt, output)


@pytest.mark.parametrize("time_scale", [1e9, 1001, 1e-9, 0, -1, math.nan, math.inf])
def test_a_time_scale_that_leaves_a_window_no_time_or_all_is_refused(time_scale: float) -> None:
    with pytest.raises(UsageError, match=r"time scale .* is out of range; from 0\.01 to 1000"):
        replace(PLAN, time_scale=time_scale)


def test_a_plan_of_another_schema_is_refused() -> None:
    with pytest.raises(InvalidCampaignError, match="schema 99"):
        Plan.from_json(PLAN.to_json() | {"schema": 99})


def test_equal_plans_give_equal_orders_and_another_seed_gives_others() -> None:
    other = replace(PLAN, seed=8)
    assert [names(PLAN, b) for b in range(6)] == [names(replace(PLAN), b) for b in range(6)]
    assert [names(PLAN, b) for b in range(6)] != [names(other, b) for b in range(6)]


def test_a_mirrored_block_reads_the_same_backwards_and_starts_each_variant_twice() -> None:
    order = names(PLAN, 0)
    assert order == order[::-1]
    assert sorted(order) == sorted([*PLAN.variants, *PLAN.variants])


def test_a_single_design_mirrors_each_order_in_the_next_block() -> None:
    plan = replace(PLAN, design="single")
    for block in range(0, plan.blocks, 2):
        assert names(plan, block) == names(plan, block + 1)[::-1]


def test_all_starts_of_a_block_visit_the_concurrencies_in_one_order() -> None:
    assert len({s.concurrencies for s in PLAN.starts(3)}) == 1
    assert sorted(PLAN.starts(3)[0].concurrencies) == [1, 8, 96]


def test_prompts_are_new_for_each_block() -> None:
    assert PLAN.prompt_seed(0) != PLAN.prompt_seed(1)


def test_any_change_of_a_plan_changes_its_digest() -> None:
    assert replace(PLAN, delta=0.02).sha256() != PLAN.sha256()


@pytest.mark.parametrize(
    ("levels", "says"),
    [((), "no concurrency"), ((0, 8), "concurrency 0"), ((8, 1), "must rise"), ((8, 8), "must rise")],
)
def test_a_wrong_list_of_concurrencies_is_refused(levels: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_concurrencies(levels)


def test_one_block_is_refused() -> None:
    with pytest.raises(UsageError, match=r"blocks = 1; from 2 to 10,000"):
        replace(PLAN, blocks=1)


@pytest.mark.parametrize("name", ["delta", "alpha", "time_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_only_the_number_that_is_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(UsageError) as refused:
        replace(PLAN, **{name: value})  # type: ignore[arg-type]
    said = str(refused.value)
    assert said.startswith(f"{name.replace('_', ' ')} {value:g} is out of range; ")
    assert [other for other in ("delta", "alpha", "time scale") if other in said] == [name.replace("_", " ")]


def test_an_output_of_no_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 token each, not 10 for the prompt and 0 for the answer"):
        Lengths(10, 0)
