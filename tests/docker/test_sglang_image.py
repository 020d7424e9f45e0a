"""The sglang target on a stand-in base: SGLang's wheel without its dependencies and the exact Triton of that release.

Untested here, for want of a registry and a GPU: the published base image, and a launch.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.environment import ROOT
from app.errors import GateError
from app.image.build import BuiltImage, build_target, build_variant
from app.image.daemon import connect
from app.kernel.selector import SELECTOR, STALE_SELECTOR
from app.settings import Deployment
from tests.docker.conftest import REPOSITORY

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

NEEDED = ("Dockerfile", ".dockerignore", "app", "kernels", "loadtest", "requirements")


@pytest.fixture(scope="module")
def standin(api: Any, settings: Deployment, built: dict[str, BuiltImage]) -> Deployment:
    """Settings whose SGLang image is the stand-in. After the simulated images, whose stages come first."""
    image = build_target(
        connect(), "", {"PYTHON_IMAGE": settings.python_image}, print, dockerfile="tests/docker/standin.Dockerfile"
    )
    api.tag(image, f"{REPOSITORY}-standin", "latest")
    return replace(settings, sglang_image=f"{REPOSITORY}-standin:latest")


@pytest.fixture(scope="module")
def real(standin: Deployment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BuiltImage]:
    locks = tmp_path_factory.mktemp("locks")
    return {name: build_variant(name, "sglang", standin, print, locks) for name in ("flashinfer", "v2")}


@pytest.fixture
def run(api: Any, real: dict[str, BuiltImage], tmp_path: Path) -> Iterator[Any]:
    """Runs the decode service of v2 with stubs in place of what the stand-in lacks; gives exit code and output."""
    made: list[str] = []

    def run(environ: dict[str, str], binds: dict[str, str] | None = None) -> tuple[int, str]:
        mounted = stubs(tmp_path) | (binds or {})
        memory = {"/tmp": "", "/home/lab": "", "/cache": "uid=10001"}
        host = api.create_host_config(
            binds=[f"{source}:{target}" for target, source in mounted.items()],
            tmpfs={place: options for place, options in memory.items() if place not in mounted},
            read_only=True,
            cap_drop=["ALL"],
        )
        one = api.create_container(real["v2"].tags[0], environment=environ, host_config=host)["Id"]
        made.append(one)
        api.start(one)
        code = int(api.wait(one)["StatusCode"])
        return code, api.logs(one).decode()

    yield run
    for one in made:
        api.remove_container(one, force=True, v=True)


@pytest.fixture
def volume(api: Any) -> Iterator[str]:
    name = str(api.create_volume(f"{REPOSITORY}-cache")["Name"])
    yield name
    api.remove_volume(name)


def stubs(folder: Path) -> dict[str, str]:
    """A model folder, a transfer library, and a `sglang` command that only tells how it was called."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model/config.json").write_text("{}")
    (folder / "nixl").mkdir(exist_ok=True)
    (folder / "nixl/__init__.py").write_text("")
    (folder / "sglang").write_text('#!/bin/sh\necho "$@"\nenv\nfind "$TRITON_CACHE_DIR" -type f | wc -l\n')
    (folder / "sglang").chmod(0o755)
    site = "/opt/venv/lib/python3.11/site-packages"
    return {
        "/model": f"{folder}/model",
        f"{site}/nixl": f"{folder}/nixl",
        "/opt/venv/bin/sglang": f"{folder}/sglang",
    }


def test_image_holds_what_its_own_triton_compiled(real: dict[str, BuiltImage]) -> None:
    identity = real["v2"].identity
    assert (identity.engine, identity.sglang_version, identity.triton_version) == ("sglang", "0.5.17", "3.6.0")
    assert identity.kernel_file.endswith("site-packages/sglang/kernels/ops/attention/flash_mla_sm120_triton.py")
    assert {name.rpartition(".")[2] for name in identity.baked} >= {"cubin", "json"}


def test_real_images_share_every_layer_but_the_last(real: dict[str, BuiltImage]) -> None:
    one, other = (image.layers for image in real.values())
    assert (one[:-1], one[-1] != other[-1]) == (other[:-1], True)
    print({name: (image.seconds, image.size_bytes, image.kernel_layer_bytes) for name, image in real.items()})


def test_gate_in_the_image_refuses_what_does_not_fit(
    standin: Deployment, real: dict[str, BuiltImage], tmp_path: Path
) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for name in NEEDED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, context / name)
    text = (ROOT / "kernels/variants/v2.yaml").read_text()
    # Its control is one that compiles nothing.
    for old, new in {"name: v2": "name: huge", "control: pinned": "control: flashinfer", "T: 16": "T: 128"}.items():
        assert old in text
        text = text.replace(old, new)
    (context / "kernels/variants/huge.yaml").write_text(text)
    arguments = {"PYTHON_IMAGE": standin.python_image, "SGLANG_IMAGE": standin.sglang_image, "VARIANT": "huge"}
    with pytest.raises(GateError, match=r"no config survives on sm_120: .* of shared memory"):
        build_target(connect(), "sglang", arguments, print, path=str(context))


def test_decode_becomes_the_server_with_its_whole_command(run: Any) -> None:
    code, output = run({SELECTOR: "triton", "DECODE_TP": "2", "DECODE_FIRST_GPU": "2", "MAX_RUNNING_REQUESTS": "96"})
    assert code == 0, output
    assert "serve --model-path /model --served-model-name deepseek-v4-flash" in output
    assert "--tp-size 2 --base-gpu-id 2 --disaggregation-mode decode" in output
    assert "--max-running-requests 96 --cuda-graph-max-bs-decode 96" in output
    assert f"{SELECTOR}=triton" in output


def test_caches_are_seeded_in_an_empty_volume_and_kept_in_a_used_one(
    volume: str, run: Any, real: dict[str, BuiltImage]
) -> None:
    count = len(real["v2"].identity.baked)
    first, second = (run({SELECTOR: "triton"}, {"/cache": volume})[1] for _ in range(2))
    assert f"Seeded(copied={count}, kept=0, replaced=0)" in first
    assert f"Seeded(copied=0, kept={count}, replaced=0)" in second
    assert second.rstrip().endswith(str(count))


def test_bind_mounted_cache_must_be_writable(run: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    code, output = run({SELECTOR: "triton"}, {"/cache": f"{tmp_path}/cache"})
    assert (code, "chown it to 10001:10001" in output) == (4, True)
    shutil.chown(tmp_path / "cache", 10001, 10001)
    assert run({SELECTOR: "triton"}, {"/cache": f"{tmp_path}/cache"})[0] == 0
    assert any((tmp_path / "cache").glob("*/triton/*/*.cubin"))


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "is not set; v2 needs"),
        ({SELECTOR: "trition"}, "would silently select the slow PyTorch path"),
        ({SELECTOR: "flashinfer"}, "but variant v2 declares triton"),
        ({SELECTOR: "triton", STALE_SELECTOR: "1"}, "no supported SGLang reads it"),
    ],
    ids=["missing", "typo", "another", "stale"],
)
def test_decode_refuses_a_wrong_selector(run: Any, environ: dict[str, str], said: str) -> None:
    code, output = run(environ)
    assert (code, said in output) == (5, True), output


def test_decode_refuses_without_its_transfer_library(run: Any) -> None:
    code, output = run({SELECTOR: "triton", "TRANSFER_BACKEND": "mooncake"})
    assert (code, "needs package mooncake" in output) == (4, True), output


def test_image_that_was_tampered_with_refuses(run: Any, real: dict[str, BuiltImage], tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("x = 1\n")
    code, output = run({SELECTOR: "triton"}, {real["v2"].identity.kernel_file: f"{tmp_path}/kernel.py"})
    assert (code, "rebuild the image" in output) == (5, True), output
