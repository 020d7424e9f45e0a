"""A comparison on containers: the same campaign code as for local processes, whatever happens to the containers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.campaign import blocks as campaigns
from app.campaign.container_runtime import Containers, campaign_containers, end_left_campaign
from app.campaign.load import run_load
from app.campaign.runs import RunFolder
from app.chaos.trial import RULES
from app.errors import NotReadyError
from app.image.build import BuiltImage
from app.progress import Progress
from app.records import owned
from app.settings import Deployment
from app.stack.watch import Watch
from loadtest.plan import Lengths, Plan, Start
from tests.docker.conftest import PROJECT, leftovers

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

PLAN = Plan(
    seed=5,
    controls={"v2": "pinned"},
    concurrencies=(4,),
    blocks=2,
    design="single",
    lengths=Lengths(64, 32),
    window=RULES,
    time_scale=4.0,
)


@pytest.fixture
def containers(built: dict[str, BuiltImage], other_ports: Deployment, tmp_path: Path) -> Iterator[Containers]:
    project = f"{PROJECT}-campaign"
    made = campaign_containers(
        PLAN.variants,
        "sim",
        seed=PLAN.seed,
        time_scale=PLAN.time_scale,
        folder=tmp_path / "run",
        say=print,
        settings=other_ports,
        project=project,
    )
    yield made
    made.stack.down()


def campaign(containers: Containers, folder: Path) -> campaigns.Campaign:
    progress = Progress(len(PLAN.starts(0)) * PLAN.blocks)
    return campaigns.Campaign(PLAN, containers.kernels, RunFolder(folder), containers.stack, progress)


def test_containers_of_a_campaign_are_ended_once_no_lab_holds_it(
    api: Any, containers: Containers, other_ports: Deployment, tmp_path: Path
) -> None:
    project, folder = f"{PROJECT}-campaign", tmp_path / "run"
    with owned(folder):
        containers.stack.up(containers.kernels["pinned"], "block-000/start-00-pinned")
        assert {c.campaign for c in containers.stack.containers()} == {str(folder)}
        assert end_left_campaign(other_ports, project) == str(folder)
        assert containers.stack.alive() == []
        with pytest.raises(NotReadyError, match="runs on this Engine"):
            other_campaign(other_ports, project, tmp_path / "other")
    assert end_left_campaign(other_ports, project) == ""
    assert leftovers(api, project) == []


def other_campaign(settings: Deployment, project: str, folder: Path) -> Containers:
    return campaign_containers(
        PLAN.variants, "sim", seed=1, time_scale=1.0, folder=folder, say=print, settings=settings, project=project
    )


def test_campaign_measures_every_start_and_does_the_block_again_whose_decode_was_killed(
    api: Any, containers: Containers, tmp_path: Path
) -> None:
    made = campaign(containers, tmp_path / "run")
    killed: list[str] = []

    def load(order: Path, plan: Plan, start: Start, watch: Watch) -> list[Any]:
        if (start.block, start.index) == (1, 1) and not killed:
            threading.Thread(target=kill_decode, args=(api, killed)).start()
        return run_load(order, plan, start, watch)

    cells = campaigns.run(replace(made, load=load))
    assert len(killed) == 1
    assert len(cells) == PLAN.blocks * len(PLAN.starts(0))
    (void,) = [r for r in made.folder.void_attempts() if r["block"] == 1 and "decode ended" in " ".join(r["void"])]
    assert void["void"][0].startswith("start-01-")
    assert leftovers(api, f"{PROJECT}-campaign") == []
    logs = sorted(p.name for p in (tmp_path / "run" / "logs").iterdir())
    assert {"prefill.log", "router.log"} < set(logs)
    assert len([name for name in logs if name.endswith("-decode.log")]) == len(cells)


def kill_decode(api: Any, killed: list[str]) -> None:
    time.sleep(2)
    labels = [f"com.docker.compose.project={PROJECT}-campaign", "com.docker.compose.service=decode"]
    (container,) = api.containers(filters={"label": labels})
    api.kill(container["Id"])
    killed.append(container["Id"])
