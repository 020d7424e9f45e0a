"""A campaign on containers: every variant's image built beforehand, and the stack that runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.errors import NotReadyError, UsageError
from app.image.build import build_services, build_variant
from app.kernel.placed import PlacedKernel
from app.records import held
from app.settings import Deployment, settings_here
from app.stack.docker import CAMPAIGN_PROJECT, DockerStack
from app.stack.published import require_ports_free


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
    folder: Path,
    say: Callable[[str], None],
    settings: Deployment | None = None,
    project: str = CAMPAIGN_PROJECT,
) -> Containers:
    """Builds an image for each variant, for prefill, router and load page; nothing is started yet.

    folder: the campaign's, held by this lab; a label of its containers names it. NotReadyError while another runs here.
    """
    settings = settings or settings_here(os.environ)
    if busy := _measuring(DockerStack(settings, engine, None, project=project), but=folder):
        raise NotReadyError(f"the campaign in {busy} runs on this Engine; wait for it, or end it and resume it later")
    settings = replace(settings, sim_seed=seed, sim_time_scale=time_scale, campaign=str(folder.resolve()))
    if engine == "sim":
        settings = replace(settings, health_interval_s=1)
    elif time_scale != 1:
        raise UsageError(f"time scale {time_scale:g} on a real engine; it must be 1")
    images = {name: build_variant(name, engine, settings, say) for name in (*variants, settings.prefill_variant)}
    build_services(settings, say)
    prefill = images[settings.prefill_variant].placed
    stack = DockerStack(settings, engine, prefill, project=project, logs=folder / "logs", say=say, fresh=True)
    return Containers({name: images[name].placed for name in variants}, stack)


def require_room(settings: Deployment) -> None:
    """NotReadyError while another stack holds the port of a campaign's router."""
    require_ports_free(CAMPAIGN_PROJECT, {"ROUTER_PUBLISH": settings.router_publish})


def end_left_campaign(settings: Deployment, project: str = CAMPAIGN_PROJECT) -> str:
    """Takes down what a campaign left whose lab is gone; the folder of one that still runs and is left alone, or ""."""
    stack = DockerStack(settings, "sim", None, project=project)
    if busy := _measuring(stack):
        return busy
    stack.down()
    return ""


def _measuring(stack: DockerStack, but: Path | None = None) -> str:
    """Folder of the campaign whose containers these are, while a lab holds it and it is not `but`; else empty."""
    own = str(but.resolve()) if but else ""
    campaigns = {c.campaign for c in stack.containers()} - {"", own}
    return next((folder for folder in sorted(campaigns) if held(Path(folder))), "")
