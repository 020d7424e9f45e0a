from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from app.engine.sim.calibration import Calibration, Noise, read_calibration
from app.engine.sim.options import CALIBRATION
from app.engine.sim.timing import Selection, Timing, select
from app.errors import PatchError, UsageError
from tests.app.engine.running import KERNEL, write_kernel

QUIET = Noise(0, 0, 0, 0, 0, 0, 1800, 0, 0)


@pytest.fixture(scope="module")
def shipped() -> Calibration:
    return read_calibration(CALIBRATION)


def selected(shipped: Calibration, path: Path, *configs: tuple[int, int, int], draw: str = "0") -> Selection:
    return select(shipped, "triton", write_kernel(path / "kernel.py", *configs), KERNEL, draw)


def steps(shipped: Calibration, noise: Noise, seed: int = 1, start: str = "a", count: int = 1000) -> list[float]:
    timing = Timing(shipped, "(16,4,2)", noise, seed, start)
    return [timing.step_s(96, i * 0.1) for i in range(count)]


def test_timing_follows_the_config_in_the_file(shipped: Calibration, tmp_path: Path) -> None:
    assert selected(shipped, tmp_path, (16, 8, 2)).choice == "(16,8,2)"


def test_pruned_configs_leave_baseline_its_one(shipped: Calibration, tmp_path: Path) -> None:
    found = selected(shipped, tmp_path, (16, 4, 2), (32, 4, 2), (32, 8, 2))
    assert (found.survivors, len(found.configs)) == (("(16,4,2)",), 3)


def test_several_survivors_are_a_draw_that_mostly_finds_the_fastest(shipped: Calibration, tmp_path: Path) -> None:
    draws = [selected(shipped, tmp_path, (16, 8, 2), (16, 4, 2), draw=str(i)).choice for i in range(200)]
    assert 0.85 < draws.count("(16,4,2)") / 200 < 1


def test_a_draw_repeats_with_its_seed(shipped: Calibration, tmp_path: Path) -> None:
    draws = {selected(shipped, tmp_path, (16, 8, 2), (16, 4, 2), draw="7").choice for _ in range(5)}
    assert len(draws) == 1


def test_selector_that_passes_the_file_by_has_its_own_timing(shipped: Calibration) -> None:
    assert select(shipped, "flashinfer", None, KERNEL, "0").choice == "flashinfer"


def test_selector_without_timing_is_refused(shipped: Calibration) -> None:
    with pytest.raises(UsageError, match=r"unknown selector in .* 'flashmla'; known: flashinfer, triton"):
        select(shipped, "flashmla", None, KERNEL, "0")


def test_triton_without_a_kernel_file_is_refused(shipped: Calibration) -> None:
    with pytest.raises(UsageError, match="needs --kernel-file"):
        select(shipped, "triton", None, KERNEL, "0")


def test_file_without_the_kernel_is_refused_by_the_patcher(shipped: Calibration, tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "kernel.py", (16, 4, 2))
    with pytest.raises(PatchError):
        select(shipped, "triton", path, "another_kernel", "0")


def test_missing_kernel_file_is_refused(shipped: Calibration, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        select(shipped, "triton", tmp_path / "none.py", KERNEL, "0")


def test_no_noise_gives_the_calibrated_step(shipped: Calibration) -> None:
    assert set(steps(shipped, QUIET)) == {shipped.step_s("(16,4,2)", 96)}


def test_equal_seeds_give_equal_steps(shipped: Calibration) -> None:
    noise = shipped.noise("default")
    assert steps(shipped, noise) == steps(shipped, noise)
    assert steps(shipped, noise) != steps(shipped, noise, start="b")
    assert steps(shipped, noise) != steps(shipped, noise, seed=2)


def test_starts_differ_by_the_start_noise(shipped: Calibration) -> None:
    noise = Noise(2.0, 0, 0, 0, 0, 0, 1800, 0, 0)
    factors = [Timing(shipped, "(16,4,2)", noise, 1, str(i)).start_factor for i in range(400)]
    assert statistics.stdev(factors) == pytest.approx(0.02, rel=0.15)


def test_bimodal_starts_show_their_share_of_slow_ones(shipped: Calibration) -> None:
    noise = Noise(0, 0.3, 7.0, 0, 0, 0, 1800, 0, 0)
    factors = [Timing(shipped, "(16,4,2)", noise, 1, str(i)).start_factor for i in range(400)]
    assert set(factors) == {1.0, 1.07}
    assert 0.22 < factors.count(1.07) / 400 < 0.38


def test_steps_are_autocorrelated_as_asked(shipped: Calibration) -> None:
    values = steps(shipped, Noise(0, 0, 0, 2.0, 0.9, 0, 1800, 0, 0), count=20_000)
    assert statistics.correlation(values[:-1], values[1:]) == pytest.approx(0.9, abs=0.03)
    assert statistics.stdev(values) / statistics.mean(values) == pytest.approx(0.02, rel=0.2)


def test_drift_is_the_hosts_and_outlives_a_start(shipped: Calibration) -> None:
    noise = Noise(0, 0, 0, 0, 0, 5.0, 600, 0, 0)
    first = Timing(shipped, "(16,4,2)", noise, 1, "a", drift_origin_s=0)
    later = Timing(shipped, "(16,4,2)", noise, 1, "b", drift_origin_s=500)
    assert first.step_s(96, 500) == pytest.approx(later.step_s(96, 0), rel=1e-12)
    assert first.step_s(96, 0) != pytest.approx(first.step_s(96, 150), rel=1e-3)


def test_stalls_come_as_often_as_asked(shipped: Calibration) -> None:
    values = steps(shipped, Noise(0, 0, 0, 0, 0, 0, 1800, 0.5, 300), count=20_000)
    stalled = [v for v in values if v > 0.4]
    assert len(stalled) / sum(values) == pytest.approx(0.5 * min(values) / statistics.mean(values), rel=0.1)
