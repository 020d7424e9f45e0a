"""Command line of the simulated engine, as one frozen value."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.kernel.selector import SELECTORS

ROLES = ("prefill", "decode", "single")
CALIBRATION = Path(__file__).with_name("calibration.yaml")


@dataclass(frozen=True, slots=True)
class Options:
    """What one engine process is asked to be."""

    role: str
    host: str = "127.0.0.1"
    port: int = 30000
    bootstrap_port: int = 8998
    kernel_file: Path | None = None
    kernel: str = "_tiled_sparse_decode_kernel"
    selector: str = "triton"
    variant: str = ""
    calibration: Path = CALIBRATION
    noise: str = "default"
    seed: int = 0
    start_seed: str = ""
    time_scale: float = 1.0
    model: str = "DeepSeek-V4-Flash"
    truth: str = ""
    script: str = ""
    max_total_tokens: int | None = None
    max_running_requests: int = 256
    page_size: int = 256
    context_length: int = 131072
    startup_s: float = 0.0
    enable_cache_report: bool = False
    key_file: Path | None = None
    pdeathsig: bool = False


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Options from the command line; argparse ends the process with 2 when they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m app.engine.sim",
        description="SIMULATED SGLang engine: HTTP surface and PD protocol, timing from a calibration file, no GPU.",
    )
    defaults = Options(role="single")
    add = parser.add_argument
    add("--role", required=True, choices=ROLES)
    add("--host", default=defaults.host)
    add("--port", type=int, default=defaults.port)
    add("--bootstrap-port", type=int, default=defaults.bootstrap_port, help="prefill listens here, decode asks here")
    add("--kernel-file", type=Path, help="timing follows the autotune configs found in it")
    add("--kernel", default=defaults.kernel, help="name of the kernel function in it")
    add("--selector", choices=SELECTORS, default=defaults.selector)
    add("--variant", default=defaults.variant, help="a label; timing never depends on it")
    add("--calibration", type=Path, default=defaults.calibration)
    add("--noise", default=defaults.noise, help="noise profile of the calibration file")
    add("--seed", type=int, default=defaults.seed)
    add("--start-seed", default=defaults.start_seed, help="draws this start's noise and autotune winner")
    add("--time-scale", type=float, default=defaults.time_scale, help="simulated seconds per wall second")
    add("--model", default=defaults.model)
    add("--truth", default=defaults.truth, metavar="FILE|memory", help="record when each token left; FILE is an NPZ")
    add("--script", default=defaults.script, metavar="FILE|builtin", help="clocked mock: fixed schedules, no engine")
    add("--max-total-tokens", type=int, help="KV capacity in tokens (default: the calibration's)")
    add("--max-running-requests", type=int, default=defaults.max_running_requests)
    add("--page-size", type=int, default=defaults.page_size)
    add("--context-length", type=int, default=defaults.context_length)
    add("--startup-s", type=float, default=defaults.startup_s, help="/health says 503 for so many wall seconds")
    add("--enable-cache-report", action="store_true", help="cached_tokens in usage, as SGLang's flag")
    add("--key-file", type=Path, help="YAML file with the line api-key: KEY; probes need none")
    add("--pdeathsig", action="store_true", help="stop when the parent process dies")
    given = parser.parse_args(arguments)
    if given.time_scale <= 0:
        parser.error(f"--time-scale {given.time_scale:g} must be above 0")
    return Options(**vars(given))
