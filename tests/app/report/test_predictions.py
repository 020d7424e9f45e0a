from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from app.ledger.campaigns import campaign_entry
from app.report.campaign_view import CampaignView
from app.report.conclusions import hypothesis_outcome, outcomes_counted
from app.report.html import render_html
from app.report.judged import judged_variants
from app.report.markdown import render_markdown
from app.report.predictions import Prediction, predictions


@pytest.mark.parametrize(
    ("predicted", "outcome"),
    [([-30, 0], "held"), ([15, 25], "refuted"), ([-40, -30], "refuted"), ([-16, 5], "open"), ([-30, -16], "open")],
)
def test_prediction_is_set_against_the_whole_interval(view: CampaignView, predicted: list[float], outcome: str) -> None:
    found = predictions({"prediction": {"1": predicted}}, view.judged_variant("v1"))
    assert [p.outcome for p in found] == [outcome]


@pytest.mark.parametrize(
    ("predicted", "outcome"), [([-30, 0], "for it so far"), ([15, 25], "against it so far"), ([-16, 5], "open")]
)
@pytest.mark.parametrize("change", [{"interim": True}, {"blocks": 3}])
def test_no_prediction_is_refuted_before_there_is_a_verdict(
    view: CampaignView, change: dict[str, Any], predicted: list[float], outcome: str
) -> None:
    verdict = copy.deepcopy(dict(view.verdict))
    verdict["interim"] = change.get("interim", False)
    for variant in verdict["variants"]:
        variant["blocks"] = variant["blocks"][: change.get("blocks")]
    (judged, *_) = judged_variants(verdict)
    assert [p.outcome for p in predictions({"prediction": {"1": predicted}}, judged)] == [outcome]


def test_prediction_of_a_level_that_was_not_measured_is_left_out(view: CampaignView) -> None:
    assert predictions({"prediction": {"512": [1, 2]}}, view.judged_variant("v1")) == ()


def test_control_has_no_prediction_to_check(view: CampaignView) -> None:
    assert predictions({"prediction": {"1": [0, 1]}}, view.judged_variant("pinned")) == ()


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        ((), "no prediction"),
        (("held", "held"), "held"),
        (("held", "refuted"), "refuted"),
        (("held", "open"), "open"),
        (("not judged",), "not judged"),
        (("for it so far",), "for it so far"),
        (("against it so far", "for it so far"), "against it so far"),
    ],
)
def test_hypothesis_holds_only_where_all_of_it_holds(outcomes: tuple[str, ...], whole: str) -> None:
    assert hypothesis_outcome(Prediction(1, (0, 1), (0, 1), o) for o in outcomes) == whole


def test_a_prediction_of_half_a_percent_is_the_same_figures_in_every_report(view: CampaignView) -> None:
    narrow = replace(view, manifest={**view.manifest, "variants": {"v1": {"prediction": {"1": [-0.5, 0.5]}}}})
    for page in (render_markdown(narrow), render_html(narrow), campaign_entry(narrow)):
        assert "-0.5 to +0.5" in page
        assert "0 to 0" not in page.replace("0.0 to", "").replace(" to 0.0", "")


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ((), "no prediction"),
        (("held", "held"), "held"),
        (("not judged", "not judged"), "not judged"),
        (("held", "open"), "1 held, 1 open"),
        (("open", "held", "open"), "2 open, 1 held"),
        (("held", "refuted"), "refuted (1 held, 1 refuted)"),
        (("for it so far", "against it so far"), "against it so far (1 for it so far, 1 against it so far)"),
    ],
)
def test_what_became_of_a_prediction_is_counted_where_its_parts_differ(outcomes: tuple[str, ...], said: str) -> None:
    assert outcomes_counted(Prediction(1, (0, 1), (0, 1), o) for o in outcomes) == said


def test_ledger_and_page_count_what_held_and_what_is_open(view: CampaignView) -> None:
    record = {"prediction": {"1": [-30, 0], "4": [-7.2, -6.9]}}
    parted = replace(view, manifest={**view.manifest, "variants": {"v1": record}})
    assert [p.outcome for p in predictions(record, view.judged_variant("v1"))] == ["held", "open"]
    assert "Prediction: 1 held, 1 open." in campaign_entry(parted)
    assert "Prediction: 1 held, 1 open<" in render_html(parted)
