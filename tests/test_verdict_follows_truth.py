"""A whole campaign through real processes, the real router and the real load driver, with the truth swapped beneath."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.campaign.compare import begin, write_plan
from app.campaign.runtimes import Setup
from app.engine.sim.engine import CALIBRATION
from app.progress import Progress
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.verdict import VariantVerdict
from loadtest.plan import Lengths, WindowRules

# A block that other work on the machine disturbs is done again, up to twice.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


# Percent of throughput at every batch: v1, in truth a loss, changes nothing here; v2, in truth without effect, gains.
TRUTH = {"v1": ("(16,8,2)", 0.0), "v2": ("(16,4,3)", 10.0)}


def swapped(folder: Path) -> Path:
    """The shipped calibration with the effects of TRUTH."""
    text = CALIBRATION.read_text()
    for config, percent in TRUTH.values():
        section = re.search(rf'  "{re.escape(config)}":\n(?:    - .*\n)+', text)
        assert section
        row = f'    - {{batch: 1, percent: {percent}, source: "assumed for a test"}}\n'
        text = text.replace(section.group(), f'  "{config}":\n{row}')
    path = folder / "calibration.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, VariantVerdict]:
    """What one campaign of both variants found; every block has a start of each and of their control."""
    folder = tmp_path_factory.mktemp("campaign")
    plan = write_plan(
        tuple(TRUTH),
        (24,),
        blocks=5,
        design="single",
        seed=20,
        lengths=Lengths(64, 96),
        window=WindowRules(settle_s=4, window_s=20, fill_timeout_s=200),
        time_scale=10,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        starts = plan.blocks * len(plan.starts(0))
        verdict = begin(plan, Setup(calibration=str(swapped(folder))), None, Progress(starts, quiet=True)).verdict
    if verdict.blocks_used < MIN_BLOCKS:
        pytest.skip(f"machine too busy: only {verdict.blocks_used} of {plan.blocks} blocks could be measured")
    return {variant.variant: variant for variant in verdict.variants}


def test_a_gain_of_ten_percent_is_accepted(found: dict[str, VariantVerdict]) -> None:
    assert found["v2"].decision == "accept"
    assert [level.outcome for level in found["v2"].levels] == ["better"]
    assert all(level.low_pct is not None and 0 < level.low_pct < 10.5 for level in found["v2"].levels)


def test_no_effect_is_called_neither_better_nor_worse(found: dict[str, VariantVerdict]) -> None:
    assert {level.outcome for level in found["v1"].levels} <= {"equivalent", "undecided"}
    assert found["v1"].decision == "undecided"
