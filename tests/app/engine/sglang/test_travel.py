from __future__ import annotations

import gzip
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine.sglang import travel
from app.engine.sglang.travel import Bundle, download_command, fetch_wheels, find_wheel, installed_path, read_bundles
from app.environment import ROOT
from app.errors import NotReadyError, UsageError

PYTHON, BUNDLES = read_bundles()


def locked(file: str) -> dict[str, str]:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return {n.replace("_", "-").lower(): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def test_the_carried_load_driver_is_the_one_that_the_lab_is_locked_to() -> None:
    base = locked("gate.lock") | locked("base.lock")
    assert {n: v for n, v in BUNDLES["lab"].wheels.items() if base.get(n) != v} == {}


def test_the_carried_sglang_and_router_are_the_labs() -> None:
    assert BUNDLES["server"].wheels["sglang"] == "0.5.17"
    assert BUNDLES["pd"].wheels["sglang-router"] == locked("base.lock")["sglang-router"]


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("transformers/models/qwen3/modeling_qwen3.py", False),
        ("transformers/models/qwen3/configuration_qwen3.py", True),
        ("transformers/models/deepseek_v4/modeling_deepseek_v4.py", True),
        ("sgl_kernel/flash_ops.abi3.so", False),
        ("sgl_kernel/sm90/common_ops.abi3.so", True),
        ("sglang/kernels/ops/attention/flash_mla_sm120_triton.py", True),
        ("sglang/srt/__pycache__/x.cpython-312.pyc", False),
    ],
)
def test_a_path_travels_or_stays_as_the_rules_say(path: str, kept: bool) -> None:
    assert BUNDLES["server"].kept(path) is kept


def test_exact_versions_are_asked_for_whatever_runs_here() -> None:
    command = download_command({"sglang": "0.5.17"}, PYTHON, Path("wheels"))
    assert command[-1] == "sglang==0.5.17"
    assert command[command.index("--python-version") :][:2] == ["--python-version", "3.12"]
    assert {"cp312", "abi3", "none", "manylinux_2_34_x86_64"} <= set(command)


def test_scripts_and_headers_of_a_wheel_stay_behind() -> None:
    assert installed_path("a/b.py") == "a/b.py"
    assert installed_path("a-1.data/purelib/a/c.py") == "a/c.py"
    assert installed_path("a-1.data/scripts/run") is None


def test_only_a_whole_wheel_of_the_version_is_found(tmp_path: Path) -> None:
    (tmp_path / "a_b-1.0-py3-none-any.whl").write_bytes(b"half a file")
    assert find_wheel(tmp_path, "a-b", "1.0") is None
    with zipfile.ZipFile(tmp_path / "a_b-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a.py", "")
    assert find_wheel(tmp_path, "A.B", "1.0") is not None
    assert find_wheel(tmp_path, "a-b", "1.1") is None


def test_a_wheel_that_cannot_be_fetched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    bundle: Bundle = replace(BUNDLES["pd"], wheels={"nixl": "1.5.1"})
    with pytest.raises(NotReadyError, match="nixl could not be fetched"):
        fetch_wheels(bundle, PYTHON, tmp_path, print)


def test_an_unknown_bundle_is_refused(tmp_path: Path) -> None:
    from app.engine.sglang.travel import prepare

    with pytest.raises(UsageError, match="unknown bundle 'all'; known: lab, pd, server, tests"):
        prepare(["all"], tmp_path, None, print)


@pytest.mark.parametrize("bundles", ["", ",", " , "])
def test_no_bundle_at_all_is_refused(bundles: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^no bundles given; for example --bundles server,lab$"):
        travel.show_preparation(bundles, str(tmp_path), "")


@pytest.mark.parametrize("content", [None, b"", b"words", gzip.compress(b"x" * 5000), gzip.compress(b"x" * 5000)[:-9]])
def test_caches_that_cannot_be_read_are_refused_before_anything_is_made(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(travel, "prepare", lambda *_: pytest.fail("it went on"))
    if content is not None:
        (tmp_path / "c.tar.gz").write_bytes(content)
    with pytest.raises(UsageError, match=r"--caches .*c\.tar\.gz is no \.tar\.gz that can be read \(.+\); name one"):
        travel.show_preparation("server", str(tmp_path), str(tmp_path / "c.tar.gz"))
