from __future__ import annotations

import pytest

from app.engine.sim.calibration import Calibration, read_calibration
from app.engine.sim.options import CALIBRATION
from app.engine.sim.virtual import ClosedLoop, step_effect, truth


@pytest.fixture(scope="module")
def shipped() -> Calibration:
    return read_calibration(CALIBRATION)


@pytest.mark.parametrize("concurrency", [1, 8, 48])
def test_closed_loop_dilutes_the_step_effect_only_a_little(shipped: Calibration, concurrency: int) -> None:
    at_the_step = step_effect(shipped, "(16,8,2)", "(16,4,2)", concurrency)
    assert truth(shipped, "(16,8,2)", "(16,4,2)", concurrency) == pytest.approx(at_the_step, abs=0.004)


def test_a_config_against_itself_has_no_effect(shipped: Calibration) -> None:
    assert truth(shipped, "(16,4,2)", "(16,4,2)", 8) == 0


def test_overhead_between_requests_dilutes_the_effect(shipped: Calibration) -> None:
    near = truth(shipped, "(16,8,2)", "(16,4,2)", 1, output_tokens=64)
    far = truth(shipped, "(16,8,2)", "(16,4,2)", 1, output_tokens=64, overhead_s=1.0)
    assert near < far < 0


def test_loop_at_96_gives_about_the_campaigns_total(shipped: Calibration) -> None:
    assert ClosedLoop(shipped, "(16,4,2)", 96, 1024, 256).tokens_per_s() == pytest.approx(845, rel=0.01)
