from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.doctor.host import GIB
from app.doctor.model import folder, geometry, weights
from kernels.geometry import DEEPSEEK_V4_FLASH
from tests.app.doctor.machine import QUERY, gpus, machine

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model folder of 160 GiB, in sparse files."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(dict(DEEPSEEK_V4_FLASH)))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}))
    for name in SHARDS:
        (path / name).touch()
        os.truncate(path / name, 80 * GIB)
    return path


def test_a_whole_model_is_told_with_its_size(tmp_path: Path, model: Path) -> None:
    found = folder(machine(tmp_path, model_path=str(model)))
    assert (found.status, found.found) == ("ok", f"{model}: 2 weight files, 160 GiB")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", SHARDS[1]])
def test_a_missing_file_is_named(tmp_path: Path, model: Path, name: str) -> None:
    (model / name).unlink()
    finding = folder(machine(tmp_path, model_path=str(model)))
    assert (finding.status, name.removesuffix(".json")[:9] in finding.found) == ("fail", True)


def test_a_pointer_in_place_of_weights_is_no_weight(tmp_path: Path, model: Path) -> None:
    (model / SHARDS[0]).write_text("version https://git-lfs.github.com/spec/v1\n")
    finding = folder(machine(tmp_path, model_path=str(model)))
    assert (finding.status, f"{SHARDS[0]} (a pointer)" in finding.found) == ("fail", True)


def test_a_torn_index_is_told(tmp_path: Path, model: Path) -> None:
    (model / "model.safetensors.index.json").write_text("{")
    assert "a readable model.safetensors.index.json" in folder(machine(tmp_path, model_path=str(model))).found


def test_no_folder_is_told_with_its_setting(tmp_path: Path) -> None:
    finding = folder(machine(tmp_path, model_path="/nowhere"))
    assert (finding.found, "MODEL_PATH" in finding.remedy) == ("no folder /nowhere", True)


def test_heads_and_tp_give_the_block_of_heads(tmp_path: Path, model: Path) -> None:
    found = geometry(machine(tmp_path, model_path=str(model), prefill_tp=2, decode_first_gpu=2))
    assert found.found == (
        "decode 64 heads / TP 4 = 16 local heads, block_h 16 (SGLang launches decode for 64, block_h 32: see --tp 1); "
        "prefill 64 heads / TP 2 = 32 local heads, block_h 32 (SGLang launches decode for 64, block_h 32: see --tp 1)"
    )


def test_heads_that_tp_does_not_divide_fail(tmp_path: Path, model: Path) -> None:
    finding = geometry(machine(tmp_path, model_path=str(model), decode_tp=3))
    assert (finding.status, "cannot be split over TP 3" in finding.found) == ("fail", True)


@pytest.mark.parametrize(
    ("tp", "mib", "status"),
    [
        (4, "97887 MiB", "ok"),
        (2, "97887 MiB", "ok"),
        (1, "97887 MiB", "fail"),
        (4, "40960 MiB", "fail"),
        (4, "[N/A]", "skipped"),
    ],
)
def test_weights_must_fit_the_smallest_card(tmp_path: Path, model: Path, tp: int, mib: str, status: str) -> None:
    host = machine(tmp_path, {QUERY: gpus(8, mib=mib)}, model_path=str(model), prefill_tp=tp, decode_tp=tp)
    assert weights(host).status == status


@pytest.mark.parametrize("check", [geometry, weights])
def test_without_a_model_its_shape_is_not_claimed(tmp_path: Path, check: object) -> None:
    assert callable(check)
    assert check(machine(tmp_path, {QUERY: gpus(8)}, model_path="/nowhere")).status == "skipped"
