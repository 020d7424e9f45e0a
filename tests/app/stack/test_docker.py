"""What the stack in containers says of them, of an Engine that is played."""

from __future__ import annotations

import pytest

from app.settings import settings_here
from app.stack.docker import Container, DockerStack

DECODE = Container("decode", "1", "i", "exited", "", 137, "", "", "")


class Engine:
    """Its `api` is itself; every container's log is `log`."""

    log = b""

    @property
    def api(self) -> Engine:
        return self

    def logs(self, _: str, tail: int) -> bytes:
        return b"\n".join(self.log.splitlines()[-tail:])


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
