"""The load page in its hardened container, with workers of its own: swarming sends real requests through the router."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from app.answer import session
from app.image.build import BuiltImage
from app.settings import Deployment
from app.stack.compose import Compose, compose_files
from tests.docker.conftest import PROJECT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture
def page(built: dict[str, BuiltImage], other_ports: Deployment) -> Iterator[str]:
    """URL of the load page of a stack that compose alone brought up, with two load workers."""
    compose = Compose(f"{PROJECT}-page", compose_files("sim", ("compose.workers.yml",)))
    environment = other_ports.environment()
    try:
        compose.run(environment, "up", "--detach", "--wait", "--no-build", "--pull", "never", "--scale", "worker=2")
        yield f"http://127.0.0.1:{other_ports.loadtest_publish}"
    finally:
        compose.run(environment, "down", "--volumes", "--timeout", "2")


def stats(page: str) -> dict[str, Any]:
    return dict(session().get(f"{page}/stats/requests", timeout=30).json())


def until(page: str, key: str, least: int) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (found := stats(page)).get(key, 0) < least:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def test_swarm_of_two_workers_is_answered(page: str) -> None:
    until(page, "worker_count", 2)
    answer = session().post(f"{page}/swarm", data={"user_count": 2, "spawn_rate": 2}, timeout=30)
    assert answer.json()["success"] is True
    assert until(page, "user_count", 1)["state"] in ("spawning", "running")
    deadline = time.monotonic() + 60
    while not (total := stats(page)["stats"][-1])["num_requests"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert (total["name"], total["num_failures"]) == ("Aggregated", 0)
    with pytest.raises(requests.ConnectionError):
        # Loopback alone: the page is not on this host's other addresses.
        session().get(page.replace("127.0.0.1", "127.0.0.2"), timeout=5)
