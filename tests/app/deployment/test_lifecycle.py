from __future__ import annotations

from pathlib import Path

import pytest

from app.deployment.lifecycle import Lifecycle
from app.errors import NotReadyError
from app.settings import settings_here
from app.stack.docker import Container, DockerStack

ROUTER = Container("router", "1", "i", "running", "", 0, "", "", "")


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ([ROUTER], r"^router of the stack decode-ab began without invoke up.*end it with `invoke down`"),
        ([], "^no stack is up; start one with: invoke up"),
    ],
)
def test_a_stack_that_compose_alone_started_is_named_where_none_was_brought_up(
    there: list[Container], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DockerStack, "containers", lambda _: there)
    with pytest.raises(NotReadyError, match=says):
        Lifecycle(settings_here({}), print, state=tmp_path).verify()


def test_a_taken_port_is_found_before_an_image_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(project: str, ports: dict[str, int]) -> None:
        raise NotReadyError(f"{project} wants {', '.join(ports)}")

    monkeypatch.setattr("app.deployment.lifecycle.require_ports_free", held)
    monkeypatch.setattr(Lifecycle, "build", lambda *_: pytest.fail("built"))
    with pytest.raises(NotReadyError, match="decode-ab wants ROUTER_PUBLISH, LOADTEST_PUBLISH"):
        Lifecycle(settings_here({}), print, state=tmp_path).up("v1", "sim")
