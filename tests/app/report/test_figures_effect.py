from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.report.campaign_view import CampaignView
from app.report.figures_effect import differences, forest
from app.report.judged import Judged

# Where the axis of the chart ends, in its own pixels.
RIGHT = 252.0


def judged_with(view: CampaignView, low: float, high: float) -> Judged:
    """The campaign's v1 with one interval of its first level, its blocks within a few percent as they are."""
    judged = view.judged_variant("v1")
    assert judged is not None
    first, *rest = judged.levels
    return replace(judged, levels=(replace(first, simultaneous_low_pct=low, simultaneous_high_pct=high), *rest))


def test_an_interval_far_beyond_the_blocks_ends_in_an_arrow_and_leaves_the_others_their_scale(
    view: CampaignView,
) -> None:
    plain, wide = (str(forest(judged_with(view, *ends), 0.01, {})) for ends in ((-30.0, 5.0), (-99.7, 37_798.5)))
    assert "+37,798.5" in wide
    ends = [float(x) for x in re.findall(r'x2="([-\d.]+)"', wide)]
    assert max(ends) <= RIGHT + 1e-6
    # Two strokes of an arrow at each end in place of one cap.
    assert wide.count("<line") == plain.count("<line") + 2


@pytest.mark.parametrize("high", [5.0, 37_798.5])
def test_block_differences_are_drawn_on_the_scale_of_the_blocks(view: CampaignView, high: float) -> None:
    near, far = (str(differences(judged_with(view, -30.0, end), 0.01)) for end in (5.0, high))
    assert near == far
