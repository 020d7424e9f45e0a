from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from app.errors import NotReadyError
from app.stack.published import require_ports_free


class Engine:
    """Its `api` is itself; it runs `listed`."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []

    @property
    def api(self) -> Engine:
        return self

    def containers(self) -> list[dict[str, Any]]:
        return self.listed


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr("app.stack.published.connect", lambda: made)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return made


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this process listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def container(port: int, project: str = "") -> dict[str, Any]:
    labels = {"com.docker.compose.project": project, "com.docker.compose.service": "router"} if project else {}
    return {"Names": ["/odd"], "Labels": labels, "Ports": [{"PrivatePort": 1}, {"PublicPort": port}]}


@pytest.mark.parametrize(
    ("project", "says"),
    [
        ("decode-ab", "router of the stack decode-ab: end it with `invoke down`"),
        ("other", "router of the stack other: end it with `docker compose --project-name other down`"),
        ("", "container odd: end it with `docker rm --force odd`"),
    ],
)
def test_a_container_that_holds_a_port_is_named_with_the_command_that_ends_it(
    engine: Engine, taken: int, project: str, says: str
) -> None:
    engine.listed = [container(1, "else"), container(taken, project)]
    with pytest.raises(NotReadyError) as fault:
        require_ports_free("decode-ab-campaign", {"ROUTER_PUBLISH": taken})
    assert str(fault.value) == f"ROUTER_PUBLISH={taken} is held by {says}; or set another ROUTER_PUBLISH in .env"


def test_what_its_own_containers_hold_is_left_to_be_replaced(engine: Engine, taken: int) -> None:
    engine.listed = [container(taken, "decode-ab-campaign")]
    require_ports_free("decode-ab-campaign", {"ROUTER_PUBLISH": taken})


def test_a_port_held_outside_the_engine_is_found_too(engine: Engine, taken: int) -> None:
    with pytest.raises(NotReadyError, match=f"a program outside this Engine, which `ss -ltnp 'sport = :{taken}'`"):
        require_ports_free("decode-ab", {"LOADTEST_PUBLISH": taken})


def test_ports_of_another_host_are_not_looked_for_here(
    engine: Engine, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://gpu:2376")
    require_ports_free("decode-ab", {"ROUTER_PUBLISH": taken})
