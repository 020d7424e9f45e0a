"""The same faults on containers: services killed in each phase, the lab killed while they run, the Engine stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil

from app.campaign.container_runtime import campaign_containers
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.chaos.faults import container_kills
from app.chaos.killed_lab import KilledLab
from app.chaos.record import Tried
from app.chaos.stage import Stage
from app.chaos.trial import GONE_S, Scene, Trial
from app.environment import ROOT
from app.errors import NotReadyError
from app.image.daemon import connect
from app.progress import Progress
from app.settings import settings_here
from app.stack.docker import CAMPAIGN, CAMPAIGN_PROJECT
from app.stack.local import free_port
from app.stack.process import wait_until
from loadtest.plan import Plan

LAB_KIND = "lab killed while containers run, then taken down or resumed"
ENGINE_KIND = "Engine stopped, commands interrupted"
TESTS = "tests/docker/test_interruptions.py"
# Project and images of their own.
OWN = "decode-ab-chaos"
PROJECT_LABEL = "com.docker.compose.project"
DOWN_S = 120.0


@dataclass(slots=True)
class ContainerStage(Stage):
    """A stage whose services are containers."""

    def running(self, service: str) -> int | None:
        found = _containers(OWN, f"com.docker.compose.service={service}", ended=False)
        return int(_api().inspect_container(found[0]["Id"])["State"]["Pid"]) or None if found else None

    def kill(self, victim: str, sign: signal.Signals = signal.SIGKILL) -> None:
        if victim == "driver":
            Stage.kill(self, victim, sign)
            return
        (found,) = _containers(OWN, f"com.docker.compose.service={victim}", ended=False)
        _api().kill(found["Id"], sign.name)


class KilledWithContainers:
    """The killed lab, whose containers outlive it: each names its campaign, and ends with `down` or a sitting."""

    def __init__(self, folder: Path, seed: int) -> None:
        own = {"IMAGE_REPOSITORY": OWN, "ROUTER_PUBLISH": str(free_port()), "LOADTEST_PUBLISH": str(free_port())}
        setup = Setup(runtime="docker")
        self.lab = KilledLab(folder, seed, setup, {**os.environ, **own}, self._begun)
        self._left: set[str] = set()
        self.orphaned = self.taken_down = 0

    def kill(self) -> Tried:
        """One kill; after every other one that left containers, `invoke down` must take all of them away."""
        self._left = {c["Id"] for c in _containers(CAMPAIGN_PROJECT)}
        told = self.lab.kill()
        if not told.tried or not wait_until(lambda: not any(_composing()), GONE_S):
            return told.and_also(Tried("", leaked=len(list(_composing()))))
        left = _containers(CAMPAIGN_PROJECT)
        leaked = sum(c["Labels"].get(CAMPAIGN) != str(self.lab.run.path.resolve()) for c in left)
        self.orphaned += bool(left)
        if left and self.orphaned % 2:
            leaked += self._down()
        return told.and_also(Tried("", leaked=leaked))

    def finish(self) -> Tried:
        """The last sitting, after which nothing may be there."""
        told = self.lab.finish()
        note = f"containers left by {self.orphaned}, {self.taken_down} of them ended by `invoke down`"
        return told.and_also(Tried("", leaked=everything_of(CAMPAIGN_PROJECT), note=note))

    def _begun(self) -> bool:
        # Looking after images takes so long that most kills would come before the first container.
        return any(c["Id"] not in self._left for c in _containers(CAMPAIGN_PROJECT, ended=False))

    def _down(self) -> int:
        with self.lab.command("down") as down:
            ended = down.wait(DOWN_S) == 0
        self.taken_down += 1
        return everything_of(CAMPAIGN_PROJECT) + (not ended)


def containers_tried(long: bool, folder: Path, seed: int) -> Iterator[Tried]:
    """Skipped, with the reason, where no Docker Engine answers. long: every service in every phase, ten kills."""
    try:
        connect()
    except NotReadyError as e:
        yield Tried(ENGINE_KIND, skipped=str(e))
        return
    try:
        yield from _services_killed(long, folder / "services", seed)
        yield from _lab_killed(10 if long else 4, folder / "lab", seed)
        # Before the images go, whose layers the tests build on.
        yield _engine_stopped(folder)
    finally:
        _remove_images()


def everything_of(project: str) -> int:
    """Containers, volumes and networks that a compose project still owns."""
    mine = {"label": f"{PROJECT_LABEL}={project}"}
    volumes, networks = _api().volumes(filters=mine)["Volumes"] or [], _api().networks(filters=mine)
    return len(_containers(project)) + len(volumes) + len(networks)


def container_scene(plan: Plan, folder: RunFolder, _: tuple[str, ...]) -> Scene:
    """Containers of a project of their own."""
    settings = replace(settings_here(os.environ), image_repository=OWN, router_publish=free_port())
    made = campaign_containers(
        plan.variants, "sim", seed=plan.seed, time_scale=plan.time_scale, folder=folder.path, say=lambda _: None,
        settings=settings, project=OWN,
    )  # fmt: skip
    return Scene(made.kernels, made.stack, ContainerStage)


def _services_killed(long: bool, folder: Path, seed: int) -> Iterator[Tried]:
    faults = container_kills(long)
    trial = Trial(RunFolder(folder), faults, seed, scene=container_scene)
    yield from trial.run(Progress(2 * len(faults), quiet=True))
    yield Tried(faults[0].kind, leaked=everything_of(OWN))


def _lab_killed(kills: int, folder: Path, seed: int) -> Iterator[Tried]:
    folder.mkdir(parents=True)
    killed, found = KilledWithContainers(folder, seed), 0
    yield replace(killed.lab.time(), kind=LAB_KIND)
    while found < kills:
        yield (told := replace(killed.kill(), kind=LAB_KIND))
        found += told.tried
    yield replace(killed.finish(), kind=LAB_KIND)


def _engine_stopped(folder: Path) -> Tried:
    report, began = folder / "containers.xml", time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", TESTS, f"--junit-xml={report}"]
    subprocess.run(command, cwd=ROOT, stdout=sys.stderr)
    counts = ElementTree.parse(report).getroot().find("testsuite") if report.is_file() else None
    if counts is None:
        raise NotReadyError(f"{TESTS} left no report; run pytest on it to see why")
    tests, failures, errors, skipped = (int(counts.get(n, "0")) for n in ("tests", "failures", "errors", "skipped"))
    tried = tests - skipped
    note = f"{skipped} skipped, since the Engine is not the tests' own" if skipped else ""
    return Tried(ENGINE_KIND, tried, tried - failures - errors, seconds=time.monotonic() - began, note=note)


def _composing() -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["cmdline"]):
        if "compose" in (said := process.info["cmdline"] or []) and CAMPAIGN_PROJECT in said:
            yield process


def _remove_images() -> None:
    for tag in [t for image in _api().images() for t in image.get("RepoTags") or [] if t.startswith(OWN)]:
        _api().remove_image(tag)


def _containers(project: str, *labels: str, ended: bool = True) -> list[dict[str, Any]]:
    wanted = [f"{PROJECT_LABEL}={project}", *labels]
    return list(_api().containers(all=ended, filters={"label": wanted}))


def _api() -> Any:
    client: Any = connect()
    return client.api
