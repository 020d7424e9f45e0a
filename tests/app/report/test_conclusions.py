from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

import pytest

from app.engine.sim.engine import CALIBRATION
from app.ledger.campaigns import campaign_entry
from app.report import conclusions
from app.report.campaign_view import CampaignView
from app.report.html import render_html
from app.report.markdown import render_markdown
from loadtest.judge.calibration import NAME, read_table


def with_void(view: CampaignView, *reasons: str) -> CampaignView:
    entry = {"block": 1, "variants": ["v1"], "reasons": list(reasons)}
    return replace(view, verdict={**view.verdict, "blocks_void": [entry]})


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (["v1 start 0 C=8: throttled"], "block 2: throttled (v1 start 0 C=8)"),
        (
            ["v1 start 0 C=8: lag 31.5 ms (limit 20)", "v1 start 3 C=96: lag 8 ms (limit 20)"],
            "block 2: lag 31.5 ms (limit 20) (v1 start 0 C=8 and 1 more)",
        ),
        (
            [f"{at}: {what}" for at in ("v1 start 0 C=8", "v1 start 3 C=96") for what in ("lag 31 ms", "reads glued")],
            "block 2: lag 31 ms; reads glued (both at v1 start 0 C=8 and 1 more)",
        ),
        (
            ["v1 start 0 C=8: lag 31 ms", "v1 start 0 C=8: reads glued", "v1 start 3 C=96: reads glued"],
            "block 2: lag 31 ms (v1 start 0 C=8); reads glued (v1 start 0 C=8 and 1 more)",
        ),
        (["start-01-v2 C=1: not read (Fault: sent)"], "block 2: not read (Fault: sent) (start-01-v2 C=1)"),
        (["the router ended: exit code 1"], "block 2: the router ended: exit code 1"),
    ],
)
def test_void_reasons_that_differ_in_numbers_alone_are_said_once(
    view: CampaignView, reasons: list[str], said: str
) -> None:
    assert conclusions.void_blocks(with_void(view, *reasons)) == (said,)


@pytest.mark.parametrize(
    ("simulated", "said"),
    [
        (False, "imported from aiperf, engine and conditions not recorded"),
        (True, "simulated engine, imported from aiperf, conditions not recorded"),
    ],
)
def test_an_import_claims_no_more_of_its_engine_than_its_files_tell(
    view: CampaignView, simulated: bool, said: str
) -> None:
    manifest = {"imported": True, "drivers": ["aiperf"], "simulated": simulated}
    assert conclusions.conditions(replace(view, manifest=manifest)) == said


@pytest.mark.parametrize(
    ("record", "said"),
    [({"prediction": {"64": [1, 2]}}, "none for the concurrencies measured"), ({}, "none recorded")],
)
def test_a_prediction_for_other_concurrencies_is_not_called_missing(record: dict[str, object], said: str) -> None:
    assert conclusions.unforetold(record) == said


def test_variants_with_one_decision_share_a_sentence(view: CampaignView) -> None:
    both = replace(view, judged=tuple(replace(j, decision="undecided") for j in view.judged))
    assert conclusions.headline(both) == "v1 and v2 are undecided"


def test_effects_are_told_only_where_one_was_shown(view: CampaignView) -> None:
    judged = view.judged_variant("v2")
    assert judged is not None
    quiet = replace(judged, levels=tuple(replace(level, outcome="equivalent") for level in judged.levels))
    assert conclusions.found(quiet) == ""
    assert "at C=4" in conclusions.found(judged)


def test_undecided_level_says_what_would_decide_it(view: CampaignView) -> None:
    judged = view.judged_variant("v1")
    assert judged is not None
    level = replace(judged.levels[0], outcome="undecided", mde_pct=1.44, blocks_to_decide=9)
    assert conclusions.undecided(replace(judged, levels=(level,))) == (
        "C=1 is undecided: this campaign could see 1.4 %, 9 blocks would decide",
    )


def test_two_modes_are_told_with_their_shares(view: CampaignView) -> None:
    judged = view.judged_variant("v1")
    assert judged is not None
    modes = {"gap_pct": -7.0, "variant_slow": 3, "variant_runs": 8, "control_slow": 0, "control_runs": 8}
    (line,) = conclusions.doubts(replace(judged, levels=(replace(judged.levels[0], modes=modes),)))
    assert line == "C=1: two modes 7.0 % apart, slow runs 3 of 8 (v1) and 0 of 8 (pinned)"


def test_a_machine_that_was_too_busy_is_named_with_what_to_do_and_a_sound_repeat_is_not(view: CampaignView) -> None:
    (told,) = conclusions.warnings(with_void(view, "v1 start 0 C=8: client late, loop lag p99 31 ms (limit 20)"))
    assert "end other work or lower --time-scale" in told
    assert conclusions.warnings(with_void(view, "v1 start 0 C=8: decode ended")) == ()
    repeated = {"block": 1, "attempt": 1, "void": ["v1 start 0 C=8: client late, loop lag p99 31 ms (limit 20)"]}
    assert conclusions.warnings(replace(view, redone=(repeated,))) == ()


def test_a_calibration_of_ones_own_is_told_above_every_figure(view: CampaignView) -> None:
    own = replace(view, manifest={**view.manifest, "stack": {"calibration": "ab" * 32}})
    assert any("the effect is what that file says" in line for line in conclusions.warnings(own))
    shipped = hashlib.sha256(CALIBRATION.read_bytes()).hexdigest()
    assert not conclusions.own_calibration(replace(view, manifest={"stack": {"calibration": shipped}}))


def test_the_basis_says_that_windows_held_decode_alone(view: CampaignView) -> None:
    alone = replace(view.plan, window=replace(view.plan.window, decode_only=True))
    assert "in windows of decode alone" in conclusions.basis(replace(view, plan=alone))
    assert "decode alone" not in conclusions.basis(view)


def test_log_probabilities_that_lie_apart_are_a_warning(view: CampaignView) -> None:
    told = "log probabilities of v1's answers are up to 0.3 nats from those of pinned"
    assert told in conclusions.warnings(replace(view, verdict={**view.verdict, "headline": [told, "something else"]}))


def test_no_trend_over_concurrency_is_claimed_before_there_is_a_verdict(view: CampaignView) -> None:
    assert "- The effect " in render_markdown(view)
    assert "- The effect " in campaign_entry(view)
    waiting = replace(view, judged=tuple(replace(j, waiting=True) for j in view.judged))
    for page in (render_markdown(waiting), render_html(waiting), campaign_entry(waiting)):
        assert "The effect rises" not in page
        assert "with concurrency" not in page
        assert "trend over concurrency" not in page


def single_of_four(view: CampaignView, sha256: str) -> CampaignView:
    row = read_table().cite("single", 4)
    assert row is not None
    calibration = {"file": NAME, "sha256": sha256, "rows": {"v1": asdict(row)}}
    return replace(view, verdict={**view.verdict, "calibration": calibration})


def test_error_rates_are_said_of_the_rows_that_they_are_the_worst_of(view: CampaignView) -> None:
    rows = [r for r in read_table().rows if (r["design"], r["blocks"], r["unimodal"]) == ("single", "4", "yes")]
    least = min(rows, key=lambda r: float(r["simultaneous_coverage"]))
    assert (least["truth"], least["simultaneous_coverage"]) == ("reference v1", "0.9462")
    (told,) = conclusions.error_rates(single_of_four(view, read_table().sha256))
    assert "at most 4.8 % false verdicts in campaigns without a difference" in told
    assert "held in at least 95.0 % of these and in at least 94.6 % of those with one (" in told


def test_a_verdict_of_another_calibration_is_told_what_it_cites_alone(view: CampaignView) -> None:
    (told,) = conclusions.error_rates(single_of_four(view, "0" * 64))
    assert "held in at least 95.0 % of these (" in told
