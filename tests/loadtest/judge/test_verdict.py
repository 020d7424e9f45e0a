from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.errors import InvalidCampaignError
from loadtest.cells import Cell
from loadtest.judge.facts import Facts, VariantFacts
from loadtest.judge.verdict import Verdict, check_verdict, judge, schema
from loadtest.judge.virtual import Noise, simulate
from loadtest.plan import Design, Plan

LEVELS = (1, 8, 48, 64, 80, 96)
NONE = (0.0,) * 6
V1 = (-0.16, -0.15, -0.05, -0.05, -0.06, -0.07)
CLAIM = (-0.05, 0.0, 0.01, 0.02, 0.03, 0.04)
FACTS = Facts("demo", simulated=True, time_scale=20.0)


def plan_of(blocks: int = 8, design: Design = "mirrored", seed: int = 7) -> Plan:
    return Plan(seed, {"changed": "pinned"}, LEVELS, blocks, design=design)


def campaign(
    truth: tuple[float, ...], plan: Plan | None = None, noise: Noise | None = None, seed: int = 3
) -> list[Cell]:
    plan = plan or plan_of()
    drawn = simulate(plan, {"changed": np.array(truth)}, noise or Noise("quiet"), 1, np.random.default_rng(seed))
    return drawn.cells(0)


def verdict_on(truth: tuple[float, ...], plan: Plan | None = None, facts: Facts = FACTS, **more: Any) -> Verdict:
    plan = plan or plan_of()
    return judge(plan, campaign(truth, plan, **more), facts)


def changed(cells: list[Cell], where: Callable[[Cell], bool], **values: Any) -> list[Cell]:
    return [replace(c, **values) if where(c) else c for c in cells]


@pytest.mark.parametrize(
    ("truth", "decision"), [(NONE, "undecided"), (V1, "reject"), ((0.1,) * 6, "accept"), (CLAIM, "reject")]
)
@pytest.mark.parametrize(("design", "blocks"), [("mirrored", 8), ("mirrored", 5), ("single", 12)])
def test_known_truth_is_decided_rightly(truth: tuple[float, ...], decision: str, design: Design, blocks: int) -> None:
    assert verdict_on(truth, plan_of(blocks, design)).variants[0].decision == decision


@pytest.mark.parametrize("truth", [V1, (-0.07,) * 6])
def test_four_blocks_find_the_reference_losses(truth: tuple[float, ...]) -> None:
    levels = verdict_on(truth, plan_of(4)).variants[0].levels
    assert [x.outcome for x in levels] == ["worse"] * 6
    assert levels[-1].effect_pct == pytest.approx(-7, abs=1)


def test_no_difference_is_equivalent_at_every_level() -> None:
    variant = verdict_on(NONE).variants[0]
    assert {x.outcome for x in variant.levels} == {"equivalent"}
    assert "no gain, no loss" in variant.reason


def test_same_campaign_gives_the_same_bytes_in_another_process() -> None:
    code = "from tests.loadtest.judge.test_verdict import verdict_on, V1; print(verdict_on(V1).text(), end='')"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout == verdict_on(V1).text()


def test_order_of_cells_does_not_matter() -> None:
    cells = campaign(V1)
    assert judge(plan_of(), cells[::-1], FACTS).text() == judge(plan_of(), cells, FACTS).text()


@pytest.mark.parametrize("truth", [NONE, V1])
def test_json_conforms_to_the_schema(truth: tuple[float, ...]) -> None:
    check_verdict(json.loads(verdict_on(truth).text()))


@pytest.mark.parametrize(
    ("place", "value"), [("schema", 2), ("alpha", None), ("surprise", 1), ("campaign", 3), ("design", "paired")]
)
def test_json_that_departs_from_the_schema_is_refused(place: str, value: object) -> None:
    with pytest.raises(InvalidCampaignError, match="judge the campaign again"):
        check_verdict(verdict_on(NONE).to_json() | {place: value})


def test_every_object_of_the_schema_is_closed_and_complete() -> None:
    objects = [o for o in [schema(), *schema()["$defs"].values()] if "properties" in o]
    assert len(objects) == 9
    assert all(o["additionalProperties"] is False and set(o["required"]) == set(o["properties"]) for o in objects)


def test_a_void_cell_drops_its_block_for_both_arms_and_is_told_first_counting_from_one() -> None:
    cells = changed(
        campaign(V1), lambda c: (c.block, c.start, c.concurrency) == (2, 0, 48), reasons=("loop lag 30 ms",)
    )
    verdict = judge(plan_of(), cells, FACTS)
    assert verdict.variants[0].blocks == (0, 1, 3, 4, 5, 6, 7)
    assert {x.n_blocks for x in verdict.variants[0].levels} == {7}
    assert verdict.headline[1] == "1 of 8 blocks void, dropped for both arms: 3"
    void = {"block": 2, "variants": ["changed"], "reasons": ["pinned start 1 C=48: loop lag 30 ms"]}
    assert verdict.blocks_void == (void,)


def test_a_start_void_for_one_variant_leaves_the_other_its_block() -> None:
    plan = Plan(7, {"v1": "pinned", "v2": "pinned"}, LEVELS, 6)
    cells = changed(campaign(NONE, plan), lambda c: c.block == 1 and c.variant == "v1", reasons=("throttled",))
    v1, v2 = judge(plan, cells, FACTS).variants
    assert (len(v1.blocks), len(v2.blocks)) == (5, 6)


@pytest.mark.parametrize("what", ["failures", "short_outputs"])
def test_a_block_whose_work_differs_between_arms_gets_no_verdict(what: str) -> None:
    cells = changed(campaign(NONE), lambda c: c.block == 4 and c.variant == "changed", **{what: 3})
    void = judge(plan_of(), cells, FACTS).blocks_void
    assert [v["block"] for v in void] == [4]
    assert f"share of {what.replace('_', ' ')} differs" in void[0]["reasons"][0]


def test_equal_failures_in_both_arms_are_not_a_difference() -> None:
    cells = changed(campaign(NONE), lambda c: True, failures=1, requests=100)
    assert judge(plan_of(), cells, FACTS).blocks_void == ()


def test_a_start_without_its_mirror_voids_the_block() -> None:
    cells = [c for c in campaign(NONE) if (c.block, c.start) != (3, 1)]
    void = judge(plan_of(), cells, FACTS).blocks_void
    assert "1 of 2 starts measured" in void[0]["reasons"][0]


def test_starts_that_are_not_mirrored_void_the_block() -> None:
    order = {0: 0, 1: 1, 2: 3, 3: 2}
    cells = [replace(c, start=order[c.start]) if c.block == 0 else c for c in campaign(NONE)]
    void = judge(plan_of(), cells, FACTS).blocks_void
    assert "not mirrored" in void[0]["reasons"][0]


def test_mostly_void_blocks_make_the_variant_invalid() -> None:
    cells = changed(campaign(V1), lambda c: c.block < 5, reasons=("throttled",))
    variant = judge(plan_of(), cells, FACTS).variants[0]
    assert (variant.decision, variant.levels[0].outcome) == ("invalid", "invalid")
    assert variant.reason == "5 of 8 measured blocks are void"


@pytest.mark.parametrize("unproven", ["changed", "pinned"])
def test_what_is_not_proven_is_invalid(unproven: str) -> None:
    facts = replace(FACTS, variants={unproven: VariantFacts(proof_ok=False)})
    variant = verdict_on(V1, facts=facts).variants[0]
    assert variant.decision == "invalid"
    assert f"not proven to be {unproven}" in variant.reason


def test_same_code_is_never_accepted_or_rejected() -> None:
    facts = replace(FACTS, variants={"changed": VariantFacts(same_code=True)})
    assert verdict_on(V1, facts=facts).variants[0].decision == "same-code"


def test_a_drawn_autotune_is_stamped() -> None:
    facts = replace(FACTS, variants={"changed": VariantFacts(autotune_drawn=True, stamps=("imported",))})
    assert verdict_on(V1, facts=facts).variants[0].stamps == ("autotune drawn", "imported")


def test_an_unfinished_campaign_shows_intervals_and_claims_nothing() -> None:
    cells = [c for c in campaign(V1) if c.block < 6]
    verdict = judge(plan_of(), cells, FACTS)
    assert verdict.interim
    assert "NOT A VERDICT" in verdict.headline[1]
    assert {x.outcome for x in verdict.variants[0].levels} == {"undecided"}
    assert verdict.variants[0].levels[0].effect_pct is not None


def test_two_modes_withhold_every_claim_that_they_could_make() -> None:
    noise = Noise("stalls", stall_depth=0.07, stall_share=0.3)
    variant = verdict_on((-0.03,) * 6, noise=noise).variants[0]
    assert {x.outcome for x in variant.levels} == {"undecided"}
    assert variant.reason.startswith("two modes in the runs at C=1,8,48,64,80,96")
    assert all(x.modes and x.modes.gap_pct == pytest.approx(-7, abs=1.5) for x in variant.levels)


def test_a_slow_host_keeps_no_claim_back_and_slow_starts_do() -> None:
    plan = Plan(7, {"changed": "pinned"}, (48, 80), 4, design="single")
    rates = {
        ("pinned", 48): (12632, 12509, 12489, 12210),
        ("changed", 48): (12865, 12787, 12752, 12412),
        ("pinned", 80): (18470, 18415, 17954, 17914),
        ("changed", 80): (18973, 18980, 18878, 18295),
    }
    drawn = simulate(plan, {}, Noise("replaced"), 1, np.random.default_rng(0)).cells(0)
    cells = [replace(c, tokens_per_s=float(rates[c.variant, c.concurrency][c.block])) for c in drawn]
    low, high = judge(plan, cells, FACTS).variants[0].levels
    assert (low.outcome, low.modes) == ("better", None)
    assert high.outcome == "undecided"
    assert high.modes
    assert (high.modes.control_slow, high.modes.variant_slow) == (2, 1)


def test_gain_at_high_and_loss_at_low_concurrency_is_a_crossover() -> None:
    found = verdict_on(CLAIM).variants[0].interaction
    assert found
    assert (found.shape, found.crossover) == ("rises", True)
    assert found.high_less_low.effect_pct == pytest.approx(100 * (1.04 / 0.95 - 1), abs=1)


def test_an_equal_effect_everywhere_has_no_interaction() -> None:
    found = verdict_on((0.05,) * 6).variants[0].interaction
    assert found
    assert found.shape == "flat"


def test_an_undecided_level_says_what_would_decide_it() -> None:
    level = verdict_on((0.006,) * 6, noise=Noise("loud", 0.006, 0.006)).variants[0].levels[3]
    assert level.outcome == "undecided"
    assert level.blocks_to_decide
    assert level.blocks_to_decide > 8
    assert level.mde_pct
    assert level.mde_pct > 1


def test_single_design_says_what_it_costs() -> None:
    headline = verdict_on(NONE, plan_of(9, "single")).headline
    assert any(re.search("linear drift.*odd number of blocks", line) for line in headline)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"variant": "v9"}, "not in the plan"), ({"concurrency": 7}, "not in the plan"), ({"block": 8}, "blocks 0 to 7")],
)
def test_cells_of_another_campaign_are_refused(values: dict[str, Any], message: str) -> None:
    cells = campaign(NONE)
    with pytest.raises(InvalidCampaignError, match=message):
        judge(plan_of(), [*cells, replace(cells[0], **values)], FACTS)


def test_a_cell_that_is_there_twice_is_refused() -> None:
    cells = campaign(NONE)
    with pytest.raises(InvalidCampaignError, match="twice"):
        judge(plan_of(), [*cells, cells[0]], FACTS)


def test_a_valid_cell_without_throughput_voids_its_block() -> None:
    cells = changed(campaign(NONE), lambda c: c.block == 0 and c.concurrency == 8, tokens_per_s=float("nan"))
    assert "no throughput" in judge(plan_of(), cells, FACTS).blocks_void[0]["reasons"][0]


def test_latency_changes_stand_beside_without_a_verdict() -> None:
    beside = verdict_on((0.1,) * 6).variants[0].secondary
    tpot = [s.effect_pct for s in beside if s.metric == "tpot_p50_ms"]
    assert tpot == pytest.approx([100 * (1 / 1.1 - 1)] * 6, abs=1.5)


def test_an_uncalibrated_number_of_blocks_is_told() -> None:
    verdict = verdict_on(NONE, plan_of(3))
    assert verdict.calibration["rows"] == {"changed": None}
    assert "not calibrated for this number of blocks: changed" in verdict.headline[1]


def test_verdict_cites_the_table_of_its_own_error_rates() -> None:
    cited = verdict_on(NONE).calibration
    row = cited["rows"]["changed"]
    assert (row["design"], row["blocks"]) == ("mirrored", 8)
    assert row["false_verdicts"] <= 0.06
    assert len(cited["sha256"]) == 64
