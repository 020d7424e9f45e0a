"""Following a build's output, and what an image is called."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from app.errors import BuildError, LabError, NotReadyError
from app.image.build import _follow, build_target, repository, tags_of
from app.image.identity import Identity
from app.settings import Deployment


def identity(engine: str) -> Identity:
    common: dict[str, Any] = {"kernel": "k", "kernel_file": "/f", "base_sha256": "b" * 64}
    common["kernel_sha256"] = "abcdef012345" + "0" * 52
    return Identity("v2", "pinned", engine, "triton", **common, sglang_version="0.5.17", triton_version=None,
                    cuda_arch=120, configs=())  # fmt: skip


def test_output_is_shown_as_it_comes_and_the_image_is_the_last_one_named() -> None:
    shown: list[str] = []
    stream: list[Mapping[str, Any]] = [
        {"stream": "Step 1/2 : FROM x\n"},
        {"stream": "\x1b[91mwarning\n\x1b[0m"},
        {"aux": {"ID": "sha256:one"}},
        {"aux": {"ID": "sha256:two"}},
    ]
    assert _follow(stream, shown.append, "") == "sha256:two"
    assert shown == ["Step 1/2 : FROM x", "warning"]


def test_build_that_ends_without_an_image_is_an_error() -> None:
    with pytest.raises(BuildError, match="without an image: almost there"):
        _follow([{"stream": "almost there\n"}], print, "")


def test_simulated_images_never_lie_beside_real_ones() -> None:
    settings = Deployment(image_repository="registry.example/lab")
    assert repository(settings, "sglang") == "registry.example/lab"
    assert tags_of(settings, identity("sim")) == (
        "registry.example/lab-sim:v2",
        "registry.example/lab-sim:v2-abcdef012345",
    )


def test_a_registry_with_a_port_keeps_its_port() -> None:
    from app.image.build import _split

    assert _split("localhost:5000/lab:v2") == ("localhost:5000/lab", "v2")


@pytest.mark.parametrize(("alive", "fault"), [(True, BuildError), (False, NotReadyError)])
def test_a_step_that_a_daemon_drops_as_it_goes_is_no_fault_of_the_build(alive: bool, fault: type[LabError]) -> None:
    def ping() -> None:
        if not alive:
            raise requests.ConnectionError("refused")

    dropped = [{"error": "error creating overlay mount to /var/lib/docker/x: invalid argument"}]
    api = SimpleNamespace(build=lambda **_: dropped)
    client: Any = SimpleNamespace(api=api, info=dict, ping=ping)
    with pytest.raises(fault, match=r"the Docker daemon went away|error creating overlay mount"):
        build_target(client, "sim", {}, lambda _: None)
