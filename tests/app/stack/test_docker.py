"""What the stack in containers says of them, of an Engine that is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import settings_here
from app.stack.docker import Container, DockerStack

DECODE = Container("decode", "1", "i", "exited", "", 137, "", "", "")

OF_PROJECT = {"label": "com.docker.compose.project=decode-ab"}


class Engine:
    """Its `api` is itself; every container's log is `log`; it holds `there` until that is removed."""

    log = b""

    def __init__(self) -> None:
        self.there = ["container 1", "network n", "volume v"]

    @property
    def api(self) -> Engine:
        return self

    def logs(self, _: str, tail: int) -> bytes:
        return b"\n".join(self.log.splitlines()[-tail:])

    def stop(self, _: str, timeout: int) -> None:
        assert timeout == 10

    def remove_container(self, found: str, **_: bool) -> None:
        self.there.remove(f"container {found}")

    def networks(self, filters: dict[str, str]) -> list[dict[str, str]]:
        return [{"Id": "n"}] if filters == OF_PROJECT else []

    def remove_network(self, found: str) -> None:
        self.there.remove(f"network {found}")

    def volumes(self, filters: dict[str, str]) -> dict[str, list[dict[str, str]]]:
        return {"Volumes": [{"Name": "v"}] if filters == OF_PROJECT else []}

    def remove_volume(self, found: str) -> None:
        self.there.remove(f"volume {found}")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr("app.stack.docker.connect", lambda: made)
    monkeypatch.setattr(DockerStack, "containers", lambda _: [DECODE])
    return made


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"one\ntwo\n\x1b[33mWARN\x1b[0m three\nfour", "two | WARN three | four"),
        (b"Traceback\nValueError: no such head\nchild died\nkilling all\nbye", "ValueError: no such head"),
        (b"", "no output"),
    ],
)
def test_a_container_that_ended_is_named_with_its_last_words(engine: Engine, log: bytes, words: str) -> None:
    engine.log = log
    stack = DockerStack(settings_here({}), "sim", None)
    assert stack.ended("decode", DECODE) == f"decode ended with exit code 137: {words}"


@pytest.mark.parametrize(
    "said",
    [
        "unknown shorthand flag: 'p' in -p",
        "docker: 'compose' is not a docker command.",
        "docker: unknown command: docker compose",
    ],
)
def test_a_stack_is_taken_down_by_its_label_where_compose_is_missing(
    engine: Engine, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, lines = tmp_path / "docker", list[str]()
    docker.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 125\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    DockerStack(settings_here({}), "sim", None, say=lines.append).down()
    assert (engine.there, len(lines)) == ([], 1)
    assert lines[0].startswith("docker has no compose plugin; install docker-compose-plugin")


def test_without_a_docker_command_a_stack_is_taken_down_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    DockerStack(settings_here({}), "sim", None).down()
    assert engine.there == []
