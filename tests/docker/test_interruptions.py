"""Commands cut short at any point: a daemon that goes away, a command that is killed, a user who presses Ctrl-C."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.campaign import blocks as campaigns
from app.campaign.container_runtime import campaign_containers
from app.campaign.load import run_load
from app.deployment.lifecycle import Lifecycle
from app.environment import ROOT
from app.errors import LoadError, NotReadyError
from app.image.build import BuiltImage, build_variant
from app.image.daemon import connect
from app.settings import Deployment
from app.stack.watch import Watch
from loadtest.plan import Plan, Start
from tests.docker.conftest import PROJECT, leftovers
from tests.docker.test_campaign import PLAN, campaign

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    # The SDK leaves sockets of a daemon that went away to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


nothing = subprocess.DEVNULL


class Daemon:
    """The tests' own daemon, which can be stopped and started again with all it holds."""

    def __init__(self, command: list[str], pidfile: Path) -> None:
        self._command, self._pidfile = command, pidfile

    def stop(self) -> None:
        os.kill(int(self._pidfile.read_text()), signal.SIGTERM)
        wait(lambda: not self._pidfile.exists())

    def start(self) -> None:
        if not self._pidfile.exists():
            subprocess.run(
                ["setsid", "--fork", *self._command], stdin=nothing, stdout=nothing, stderr=nothing, check=True
            )
        wait(answers)


@pytest.fixture
def daemon(built: dict[str, BuiltImage]) -> Iterator[Daemon]:
    if "DOCKERD_COMMAND" not in os.environ:
        pytest.skip("the daemon is not the tests' own; `. ci/docker.sh && start_docker` starts one")
    made = Daemon(shlex.split(os.environ["DOCKERD_COMMAND"]), Path(os.environ["DOCKERD_PIDFILE"]))
    yield made
    made.start()


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def answers() -> bool:
    try:
        connect()
    except NotReadyError:
        return False
    return True


def test_build_without_a_daemon_says_so(daemon: Daemon, settings: Deployment, tmp_path: Path) -> None:
    daemon.stop()
    with pytest.raises(NotReadyError, match="no Docker daemon answers at"):
        build_variant("v2", "sim", settings, print, tmp_path)


def test_daemon_stopped_in_the_middle_of_a_build(daemon: Daemon, settings: Deployment, tmp_path: Path) -> None:
    def stop_at_bake(line: str) -> None:
        if "app.container bake" in line:
            daemon.stop()

    with pytest.raises(NotReadyError, match=r"the Docker daemon (went away|is going down)"):
        build_variant("aa", "sim", settings, stop_at_bake, tmp_path)
    assert not list(tmp_path.iterdir())
    daemon.start()
    assert build_variant("aa", "sim", settings, print, tmp_path).identity.variant == "aa"


def test_daemon_stopped_in_the_middle_of_a_campaign(
    api: Any, daemon: Daemon, built: dict[str, BuiltImage], other_ports: Deployment, tmp_path: Path
) -> None:
    project = f"{PROJECT}-campaign"
    make = partial(
        campaign_containers, PLAN.variants, "sim", seed=PLAN.seed, time_scale=PLAN.time_scale,
        folder=tmp_path / "run", say=print, settings=other_ports, project=project,
    )  # fmt: skip
    stopped: list[Start] = []

    def load(order: Path, plan: Plan, start: Start, watch: Watch) -> list[Any]:
        if start.block == 1 and not stopped:
            stopped.append(start)
            daemon.stop()
            # What a load without any server ends with, without the minute that it waits for one.
            raise LoadError("no answer from the router")
        return run_load(order, plan, start, watch)

    with pytest.raises(NotReadyError, match="daemon"):
        campaigns.run(replace(campaign(make(), tmp_path / "run"), load=load))
    daemon.start()
    resumed = campaign(make(), tmp_path / "run")
    first = (resumed.folder.block(0) / "block.json").read_bytes()
    assert len(campaigns.run(resumed)) == PLAN.blocks * len(PLAN.starts(0))
    assert (resumed.folder.block(0) / "block.json").read_bytes() == first
    assert leftovers(api, project) == []


def test_pressing_ctrl_c_while_starting_leaves_what_down_can_remove(
    api: Any, lifecycle: Lifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.stack.docker.wait_ready", press)
    with pytest.raises(KeyboardInterrupt):
        lifecycle.up("v2", "sim")
    monkeypatch.undo()
    assert lifecycle.up("v2", "sim").canary.completion_tokens == 4
    lifecycle.down()
    assert leftovers(api) == []


@pytest.mark.parametrize("after_s", [0.5, 2.0, 4.0, 6.0])
def test_up_that_was_killed_can_be_taken_down(
    api: Any, built: dict[str, BuiltImage], other_ports: Deployment, tmp_path: Path, after_s: float
) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from app.settings import Deployment; from app.deployment.lifecycle import Lifecycle\n"
        f"settings = Deployment(**{asdict(other_ports)!r})\n"
        f"life = Lifecycle(settings, print, project={PROJECT!r}, state=Path({str(tmp_path)!r}))\n"
        "life.up('v1', 'sim') if sys.argv[1] == 'up' else life.down()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, "up"], cwd=ROOT, stdout=nothing) as up:
        time.sleep(after_s)
        up.kill()
    time.sleep(1)
    subprocess.run([sys.executable, "-c", program, "down"], cwd=ROOT, check=True, timeout=120)
    assert leftovers(api) == []
