"""A real Docker Engine: images of the simulated stack, built once, and compose projects that are always removed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.deployment.lifecycle import Lifecycle
from app.errors import NotReadyError
from app.image.build import READER, BuiltImage, build_services, build_variant
from app.image.daemon import connect
from app.settings import Deployment

REPOSITORY = "decode-ab-trial"
PROJECT = "decode-ab-test"
BASE = os.environ.get("TEST_BASE", "decode-ab-test-base:bookworm")
VARIANTS = ("flashinfer", "baseline", "pinned", "v1", "v2")


@pytest.fixture(scope="session")
def api() -> Any:
    """The daemon's low-level client; CI must have a daemon, elsewhere its absence skips."""
    try:
        client: Any = connect()
    except NotReadyError as e:
        if os.environ.get("CI"):
            pytest.fail(str(e))
        pytest.skip(f"{e}; `. ci/docker.sh && start_docker` gives one")
    if not client.api.images(name=BASE):
        pytest.skip(f"no base image {BASE}; `. ci/docker.sh && start_docker` makes it")
    return client.api


@pytest.fixture(scope="session")
def settings(api: Any) -> Deployment:
    """Settings of the test stack: own image names, free ports, the stand-in base, time ten times as fast."""
    return Deployment(
        image_repository=REPOSITORY,
        python_image=BASE,
        router_publish=free_port(),
        loadtest_publish=free_port(),
        health_interval_s=1,
        sim_time_scale=10.0,
    )


@pytest.fixture(scope="session")
def built(api: Any, settings: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BuiltImage]]:
    """Every variant's simulated image, built in this order; all images of the tests are removed at the end."""
    locks = tmp_path_factory.mktemp("locks")
    build_services(settings, print)
    yield {name: build_variant(name, "sim", settings, print, locks) for name in VARIANTS}
    for tag in [tag for image in api.images() for tag in image.get("RepoTags") or [] if tag.startswith(REPOSITORY)]:
        api.remove_image(tag)


@pytest.fixture
def lifecycle(built: dict[str, BuiltImage], other_ports: Deployment, tmp_path: Path) -> Iterator[Lifecycle]:
    """Commands on a project of their own, taken down whatever happens."""
    made = Lifecycle(other_ports, print, project=PROJECT, state=tmp_path / "state")
    yield made
    made.down()


@pytest.fixture
def other_ports(settings: Deployment) -> Deployment:
    """The same settings with ports of their own."""
    return replace(settings, router_publish=free_port(), loadtest_publish=free_port())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def leftovers(api: Any, project: str = PROJECT) -> list[str]:
    """Names of everything that a compose project still owns."""
    mine = {"label": f"com.docker.compose.project={project}"}
    containers = [c["Names"][0] for c in api.containers(all=True, filters=mine)]
    containers += [c["Names"][0] for c in api.containers(all=True, filters={"label": READER})]
    volumes = [v["Name"] for v in api.volumes(filters=mine)["Volumes"] or []]
    return containers + volumes + [n["Name"] for n in api.networks(filters=mine)]
