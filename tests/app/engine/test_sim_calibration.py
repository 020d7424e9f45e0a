from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.sim.calibration import Calibration, Curve, read_calibration
from app.engine.sim.options import CALIBRATION
from app.errors import UsageError, VariantError
from app.kernel.variants import load_variants


@pytest.fixture(scope="module")
def shipped() -> Calibration:
    return read_calibration(CALIBRATION)


def edited(tmp_path: Path, old: str, new: str) -> Path:
    text = CALIBRATION.read_text()
    assert old in text
    path = tmp_path / "calibration.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(("config", "tokens_per_s"), [("(16,4,2)", 845), ("(16,8,2)", 785)])
def test_shipped_steps_give_the_reference_campaigns_totals_at_96(
    shipped: Calibration, config: str, tokens_per_s: float
) -> None:
    assert 96 / shipped.step_s(config, 96) == pytest.approx(tokens_per_s, rel=1e-3)


@pytest.mark.parametrize(
    ("batch", "low", "high"), [(1, -18, -14), (8, -18, -14), (48, -7, -3), (64, -7, -3), (80, -7, -3)]
)
def test_shipped_v1_effect_lies_where_the_campaign_found_it(
    shipped: Calibration, batch: int, low: float, high: float
) -> None:
    effect = shipped.step_s("(16,4,2)", batch) / shipped.step_s("(16,8,2)", batch) - 1
    assert low <= 100 * effect <= high


def test_throughput_rises_with_the_batch_up_to_96(shipped: Calibration) -> None:
    rates = [b / shipped.step_s("(16,4,2)", b) for b in range(1, 97)]
    assert rates == sorted(rates)


def test_block_32_configs_are_pruned_and_baseline_keeps_one(shipped: Calibration) -> None:
    assert shipped.survivors(["(16,4,2)", "(32,4,2)", "(32,8,2)"]) == ("(16,4,2)",)


def test_list_of_pruned_configs_only_is_refused(shipped: Calibration) -> None:
    with pytest.raises(UsageError, match=r"no config of \(32,4,2\) fits"):
        shipped.survivors(["(32,4,2)"])


def test_config_nobody_timed_is_refused_with_the_known_ones(shipped: Calibration) -> None:
    with pytest.raises(UsageError, match=r"no timing for \(16,2,2\); known: \(16,4,2\)"):
        shipped.survivors(["(16,2,2)"])


def test_curve_is_linear_between_rows_and_extends_its_last_slope() -> None:
    curve = Curve((1, 3, 5), (10.0, 20.0, 40.0), extend=True)
    assert [curve.at(b) for b in (1, 2, 4, 5, 7)] == [10, 15, 30, 40, 60]


def test_curve_that_does_not_extend_is_constant_outside() -> None:
    curve = Curve((2, 4), (10.0, 20.0), extend=False)
    assert [curve.at(b) for b in (1, 2, 4, 9)] == [10, 10, 20, 20]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{batch: 1, ms: 22.0, source: assumed}", "{batch: 1, ms: 22.0}", r":11: decode_step|missing source"),
        ("ms: 22.0, source: assumed", "ms: 22.0, source: a guess", "must begin with one of: reference campaign"),
        ("batch: 8, ms: 30.0", "batch: 1, ms: 30.0", "must rise from row to row"),
        ("ms: 30.0", "ms: fast", "must be a number"),
        ("ms: 30.0", "ms: -1", "must be from 0.001"),
        ("fixed_ms: {value: 15.0", "fixed: {value: 15.0", "unknown key 'fixed'"),
        ("config: (16,4,2)", "config: (9,9,9)", r"must be one of \(16,4,2\)"),
        ('"(32,8,2)": {source', '"(16,8,2)": {source', "also timed under configs"),
        ("schema: 1", "schema: 7", "must be 1"),
        ("step_rho: 0.98", "step_rho: 1.0", "must be from 0 to 0.9999"),
    ],
)
def test_wrong_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = edited(tmp_path, old, new)
    line = path.read_text().split(new)[0].count("\n") + 1
    with pytest.raises(VariantError, match=message) as caught:
        read_calibration(path)
    assert f"calibration.yaml:{line}:" in str(caught.value)


def test_missing_group_is_named(tmp_path: Path) -> None:
    path = edited(tmp_path, "answers:", "replies:")
    with pytest.raises(VariantError, match=r"unknown key 'replies'; allowed: .*answers"):
        read_calibration(path)


def test_unknown_noise_profile_is_refused(shipped: Calibration) -> None:
    with pytest.raises(UsageError, match="unknown noise profile 'loud'; known: ar1, bimodal, default, none, stalls"):
        shipped.noise("loud")


@pytest.mark.parametrize("name", [n for n in load_variants().names if n != "flashmla"])
def test_every_shipped_variant_has_timing_on_sm_120(shipped: Calibration, name: str) -> None:
    variant = load_variants().get(name)
    if variant.selector != "triton":
        assert variant.selector in shipped.selectors
    elif variant.change.configs:
        assert shipped.survivors([str(c) for c in variant.change.configs])
