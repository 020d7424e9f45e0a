"""A campaign on containers: every variant's image built beforehand, and the stack that runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.errors import UsageError
from app.image.build import build_services, build_variant
from app.kernel.placed import PlacedKernel
from app.settings import Deployment, settings_here
from app.stack.docker import DockerStack

# Its own project: a stack that `invoke up` started is neither used nor taken down by a campaign.
PROJECT = "decode-ab-campaign"


@dataclass(frozen=True, slots=True)
class Containers:
    """What a campaign needs of the docker runtime."""

    kernels: dict[str, PlacedKernel]
    stack: DockerStack


def campaign_containers(
    variants: Sequence[str],
    engine: str,
    *,
    seed: int,
    time_scale: float,
    logs: Path,
    say: Callable[[str], None],
    settings: Deployment | None = None,
    project: str = PROJECT,
) -> Containers:
    """Builds an image for each variant, for prefill, router and load page; nothing is started yet."""
    settings = replace(settings or settings_here(os.environ), sim_seed=seed, sim_time_scale=time_scale)
    if engine == "sim":
        settings = replace(settings, health_interval_s=1)
    elif time_scale != 1:
        raise UsageError(f"time scale {time_scale:g} on a real engine; it must be 1")
    images = {name: build_variant(name, engine, settings, say) for name in (*variants, settings.prefill_variant)}
    build_services(settings, say)
    prefill = images[settings.prefill_variant].placed
    stack = DockerStack(settings, engine, prefill, project=project, logs=logs, say=say, fresh=True)
    return Containers({name: images[name].placed for name in variants}, stack)
