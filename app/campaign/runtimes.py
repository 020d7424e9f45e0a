"""What a campaign runs on: the kernels put in place for its runtime, and the stack that will serve them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.engine.kind import Engine
from app.engine.sglang.served import Served, read_served, require_heeded, split_settings
from app.errors import UsageError
from app.kernel.placed import PlacedKernel
from app.kernel.variants import Registry
from app.settings import settings_here
from app.stack import Stack
from loadtest.client.key import key_file
from loadtest.plan import Lengths, Plan


@dataclass(frozen=True, slots=True)
class Setup:
    """Runtime, engine and release; kept in setup.json so that a campaign can be resumed.

    calibration is the simulated engine's timing file, None for the shipped one. server: settings of SGLang's servers on
    the local runtime, by name as `Served` has them. demo: begun by the demo, whose entry stays with the runs.
    """

    runtime: str = "local"
    engine: str = "sim"
    release: str = "0.5.17"
    calibration: str | None = None
    server: dict[str, str] = field(default_factory=dict)
    demo: bool = False

    def __post_init__(self) -> None:
        for what, value, known in (
            ("runtime", self.runtime, ("local", "docker")),
            ("engine", self.engine, ("sim", "sglang")),
        ):
            if value not in known:
                raise UsageError.unknown(what, value, known)
        if self.server and (self.runtime, self.engine) != ("local", "sglang"):
            raise UsageError("--model and --server are of --runtime local --engine sglang; containers read .env")
        if self.calibration is not None and (self.runtime, self.engine) != ("local", "sim"):
            raise UsageError("--calibration is of --runtime local --engine sim; images carry the shipped one")
        self.served()

    def served(self) -> Served:
        """The settings of SGLang's servers; UsageError names a wrong one."""
        return read_served({"release": self.release, **self.server})


def setup_of(runtime: str, engine: str, calibration: str, model: str, server: str) -> Setup:
    """What a campaign runs on, from texts; server: settings of SGLang's own servers as KEY=VALUE,KEY=VALUE."""
    texts = split_settings(server) | ({"model": model} if model else {})
    release = texts.pop("release", "")
    setup = Setup(runtime=runtime, engine=engine, calibration=calibration or None, server=texts)
    require_heeded(setup.served())
    return replace(setup, release=release) if release else setup


def require_runnable(setup: Setup, plan: Plan, registry: Registry) -> None:
    """Refuses what could not run before anything is made: too much at once; other module; no timing, daemon, Python."""
    _require_room(setup, max(plan.concurrencies))
    _require_context(setup, plan.lengths)
    _require_module(setup, plan, registry)
    if setup.runtime == "docker":
        from app.campaign.container_runtime import require_room

        require_room(settings_here(os.environ))
    elif setup.engine == "sglang":
        from app.engine.sglang.installation import find_installation

        find_installation(setup.release)
    else:
        _require_timings(setup, plan, registry)


def _require_module(setup: Setup, plan: Plan, registry: Registry) -> None:
    from app.kernel.upstream import pinned

    file = pinned(setup.release).file
    for variant in map(registry.get, plan.variants):
        if variant.target and file != f"{variant.target.module.replace('.', '/')}.py":
            raise UsageError(
                f"{variant.name} changes {variant.target.module}; compare puts one file in place, {file} of "
                "kernels/upstream.yaml: diff and check take any module"
            )


def _require_room(setup: Setup, concurrency: int) -> None:
    most, of, mend = _most_running(setup)
    if concurrency > most:
        raise UsageError(f"concurrency {concurrency} is above {of}, the most that decode serves at once; {mend}")


def _require_context(setup: Setup, lengths: Lengths) -> None:
    if setup.engine == "sglang" and setup.runtime == "docker":
        # The context is the model's own there, which nothing here has read.
        return
    from app.engine.sim.options import Options

    if setup.engine == "sglang":
        most, mend = setup.served().context_length, ", or a larger context_length in --server"
    else:
        most, mend = Options("decode").context_length, ""
    if lengths.prompt_tokens + lengths.output_tokens > most:
        raise UsageError(
            f"lengths {lengths.prompt_tokens},{lengths.output_tokens} do not fit the context of {most} tokens that the "
            f"engine serves; ask for shorter --lengths{mend}"
        )


def _most_running(setup: Setup) -> tuple[int, str, str]:
    """The largest decode batch, its name with its value, and how to have a larger one."""
    if setup.runtime == "docker":
        most = settings_here(os.environ).max_running_requests
        return most, f"MAX_RUNNING_REQUESTS={most}", "raise it in .env or leave that level out"
    if setup.engine == "sglang":
        most = setup.served().max_running
        return (
            most,
            f"max_running={most}",
            "raise it in --server, with graph_batches that end at it, or leave that level out",
        )
    from app.engine.sim.options import Options

    most = Options("decode").max_running_requests
    return most, f"the simulated engine's limit of {most}", "leave that level out"


def _require_timings(setup: Setup, plan: Plan, registry: Registry) -> None:
    from app.engine.sim.calibration import read_calibration

    calibration = read_calibration(_calibration(setup))
    for variant in map(registry.get, plan.variants):
        if variant.selector == "triton" and variant.change.configs:
            calibration.survivors([str(config) for config in variant.change.configs])


def _calibration(setup: Setup) -> Path:
    from app.engine.sim.engine import CALIBRATION

    return CALIBRATION if setup.calibration is None else Path(setup.calibration)


def make_ready(
    setup: Setup, plan: Plan, registry: Registry, folder: Path, say: Callable[[str], None]
) -> tuple[dict[str, PlacedKernel], Stack]:
    """Each variant's kernel in its place, and a stack that is not up yet; `say` hears of builds."""
    if setup.runtime == "docker":
        return _docker(setup, plan, folder, say)
    return _local(setup, plan, registry, folder)


def _local(setup: Setup, plan: Plan, registry: Registry, folder: Path) -> tuple[dict[str, PlacedKernel], Stack]:
    from app.kernel.placing import place_kernels
    from app.kernel.upstream import fetch_base
    from app.stack.local import LocalStack

    balancer = setup.served().balancer
    if balancer == "mini" and (key := key_file(os.environ)):
        raise UsageError(f"balancer=mini passes no key on to the servers, and {key} holds one; leave one of them out")
    kernels = place_kernels(registry, plan.variants, fetch_base(setup.release), folder / "kernels")
    return kernels, LocalStack(_engine(setup, plan, folder), folder / "logs", balancer=balancer)


def _docker(
    setup: Setup, plan: Plan, folder: Path, say: Callable[[str], None]
) -> tuple[dict[str, PlacedKernel], Stack]:
    from app.campaign.container_runtime import campaign_containers

    made = campaign_containers(
        plan.variants,
        setup.engine,
        seed=plan.seed,
        time_scale=plan.time_scale,
        folder=folder,
        say=lambda line: say(f"docker  {line[:100]}"),
    )
    return made.kernels, made.stack


def _engine(setup: Setup, plan: Plan, folder: Path) -> Engine:
    from app.engine.sim.engine import SimEngine

    if setup.engine == "sglang":
        return _sglang(setup, plan, folder)
    key = key_file(os.environ)
    return SimEngine(seed=plan.seed, time_scale=plan.time_scale, calibration=_calibration(setup), key_file=key)


def _sglang(setup: Setup, plan: Plan, folder: Path) -> Engine:
    from app.engine.sglang.engine import SglangEngine
    from app.engine.sglang.installation import find_installation

    if plan.time_scale != 1:
        raise UsageError(f"time scale {plan.time_scale:g} on a real engine; it must be 1")
    return SglangEngine(setup.served(), find_installation(setup.release), folder / "engine")
