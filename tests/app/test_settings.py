"""The settings object, and that .env.example and the compose files repeat its defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import UsageError
from app.settings import Deployment, read_deployment

COMPOSE_FILES = sorted(ROOT.glob("*compose*.yml"))
DEFAULT = re.compile(r"\$\{([A-Z_]+):?-((?:[^{}]|\$\{[^}]*\})*)\}")


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_example_lists_every_setting_with_its_default() -> None:
    assert example() == Deployment().environment()


def test_example_is_read_as_the_defaults() -> None:
    assert read_deployment(ROOT / ".env.example", {}) == Deployment()


def test_every_setting_of_the_example_stands_under_a_comment() -> None:
    text = (ROOT / ".env.example").read_text()
    blocks = [block for block in text.split("\n\n") if "=" in block]
    assert all(block.startswith("#") for block in blocks)


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda p: p.name)
def test_compose_defaults_are_those_of_the_settings(file: Path) -> None:
    defaults, images = Deployment().environment(), {"DECODE_IMAGE", "PREFILL_IMAGE"}
    found = [(k, v) for k, v in DEFAULT.findall(file.read_text()) if k not in images]
    assert [(k, v) for k, v in found if defaults[k] != v] == []


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("VARIANT=v1\nDECODE_TP=2\n")
    settings = read_deployment(tmp_path / ".env", {"VARIANT": "v2"})
    assert (settings.variant, settings.decode_tp) == ("v2", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("VARIANTS=v1", r":1: unknown setting 'VARIANTS'"),
        ("# fine\nVARIANT", r":2: 'VARIANT' is no KEY=value"),
        ("DECODE_TP=two", r"DECODE_TP 'two' is not an integer"),
        ("DECODE_PORT=70000", r"DECODE_PORT 70000 is no port"),
        ("TRANSFER_BACKEND=ucx", r"unknown TRANSFER_BACKEND 'ucx'"),
        ("SGLANG_RELEASE=0.5.16", r"unknown SGLANG_RELEASE '0.5.16'"),
        ("DECODE_FIRST_GPU=2", r"share GPU 2, 3"),
        ("IB_DEVICE=mlx5_0", r"IB_DEVICE 'mlx5_0' needs TRANSFER_BACKEND=mooncake"),
        ("BOOTSTRAP_PORT=30000", r"are both 30000"),
        ("DECODE_EXTRA_ARGS='--a \"b'", r"DECODE_EXTRA_ARGS"),
        ("PREFILL_URLS=http://localhost:30000", r"PREFILL_URLS"),
    ],
)
def test_settings_refuse_what_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / ".env").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_deployment(tmp_path / ".env", {}).check_placement()


def test_a_container_that_knows_one_role_only_is_not_held_to_the_other() -> None:
    assert read_deployment(None, {"DECODE_TP": "2", "DECODE_FIRST_GPU": "2"}).gpus("decode") == range(2, 4)


def test_roles_on_two_hosts_may_use_the_same_gpu_numbers() -> None:
    assert Deployment(decode_first_gpu=0, host_ip="192.0.2.7").check_placement().gpus("decode") == range(4)
