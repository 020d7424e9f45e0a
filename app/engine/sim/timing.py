"""How long a decode step takes in this start: what the kernel file selects, times noise drawn from seeds."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.engine.sim.calibration import Calibration, Noise
from app.errors import UsageError

WAVES = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """What runs. choice: the config, or a selector that does not reach the file; configs: as found in it."""

    choice: str
    configs: tuple[str, ...]
    survivors: tuple[str, ...]
    kernel_sha256: str


def select(calibration: Calibration, selector: str, kernel_file: Path | None, kernel: str, draw: str) -> Selection:
    """Reads the kernel file's autotune configs and draws the one this start runs; `draw` seeds the draw.

    UsageError for a config or selector without timing; the patcher's own errors for a file it cannot read.
    """
    digest = "" if kernel_file is None else _sha256(kernel_file)
    if selector != "triton":
        if selector not in calibration.selectors:
            raise UsageError.unknown(f"selector in {calibration.path}", selector, ["triton", *calibration.selectors])
        return Selection(selector, (), (), digest)
    if kernel_file is None:
        raise UsageError("selector triton needs --kernel-file: timing follows the configs found in it")
    configs = read_file_configs(kernel_file, kernel)
    survivors = calibration.survivors(configs)
    return Selection(drawn_config(calibration, survivors, draw), configs, survivors, digest)


def read_file_configs(kernel_file: Path, kernel: str) -> tuple[str, ...]:
    """The autotune list of a kernel in a file, each config as text such as (16,4,2)."""
    from app.kernel.patch import read_configs

    return tuple(str(c) for c in read_configs(kernel_file.read_text(), kernel))


def drawn_config(calibration: Calibration, survivors: Sequence[str], draw: str) -> str:
    """The config an autotuner would settle on: the fastest when its host is quiet, else any that survived."""
    rng = random.Random(f"{draw}/autotune")
    if len(survivors) > 1 and rng.random() >= calibration.quiet_share:
        return rng.choice(list(survivors))
    return min(survivors, key=lambda c: calibration.step_s(c, calibration.tuned_batch))


class Timing:
    """Step times of one start. drift_origin_s: the host's engine time at the clock's 0, so drift outlives a start."""

    def __init__(
        self,
        calibration: Calibration,
        choice: str,
        noise: Noise,
        seed: int,
        start_seed: str,
        drift_origin_s: float = 0.0,
    ) -> None:
        self._calibration, self.choice, self._noise = calibration, choice, noise
        self._origin_s = drift_origin_s
        start = random.Random(f"{seed}/start/{start_seed}")
        self.start_factor = math.exp(start.gauss(0, noise.start_sd / 100)) * self._mode(start)
        host = random.Random(f"{seed}/drift")
        # Waves of incommensurate periods: slow, bounded, and the same for every start of the host.
        self._waves = [(host.uniform(0, math.tau), noise.drift_period_s / f) for f in (1.0, math.e / 2, math.pi / 2)]
        self._steps = random.Random(f"{seed}/steps/{start_seed}")
        self._ar = 0.0
        self._known: dict[int, float] = {}

    def step_s(self, batch: int, now_s: float) -> float:
        """Seconds of the decode step that begins now; every call draws anew."""
        base = self._known.get(batch)
        if base is None:
            base = self._known[batch] = self._calibration.step_s(self.choice, batch) * self.start_factor
        return base * (1 + self._drift(now_s) + self._step()) + self._stall(base)

    def _mode(self, rng: random.Random) -> float:
        return 1 + self._noise.slow / 100 if rng.random() < self._noise.slow_share else 1.0

    def _drift(self, now_s: float) -> float:
        if not self._noise.drift:
            return 0.0
        at = self._origin_s + now_s
        return (
            self._noise.drift
            / 100
            / WAVES
            * sum(math.sin(phase + math.tau * at / period) for phase, period in self._waves)
        )

    def _step(self) -> float:
        noise = self._noise
        if not noise.step_sd:
            return 0.0
        fresh = self._steps.gauss(0, noise.step_sd / 100)
        self._ar = noise.step_rho * self._ar + math.sqrt(1 - noise.step_rho**2) * fresh
        return max(self._ar, -0.9)

    def _stall(self, step_s: float) -> float:
        if not self._noise.stall_per_s or self._steps.random() >= self._noise.stall_per_s * step_s:
            return 0.0
        return self._noise.stall_ms / 1000


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as e:
        raise UsageError(f"--kernel-file {path}: cannot be read ({e.strerror})") from e
