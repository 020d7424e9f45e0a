"""Local heads and block_h follow from the model and its parallelism; what cannot be served is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.geometry import DEEPSEEK_V4_FLASH, Geometry, GeometryError, default_geometry, geometry_of, read_geometry


def test_default_is_the_reference_campaigns_sixteen_heads() -> None:
    assert (default_geometry().local_heads, default_geometry().block_h) == (16, 16)


@pytest.mark.parametrize(
    ("heads", "tp", "local", "block_h"),
    [(64, 1, 64, 32), (64, 2, 32, 32), (64, 8, 8, 8), (64, 64, 1, 1), (128, 1, 128, 32), (96, 8, 12, 16)],
)
def test_block_h_is_at_most_32_and_a_power_of_two(heads: int, tp: int, local: int, block_h: int) -> None:
    geometry = Geometry(heads, tp)
    assert (geometry.local_heads, geometry.block_h) == (local, block_h)


@pytest.mark.parametrize(
    ("heads", "tp", "launched", "block_h"), [(64, 1, 64, 32), (64, 4, 64, 32), (16, 1, 16, 16), (128, 4, 64, 32)]
)
def test_under_tp_a_rank_is_filled_up_as_sglang_does(heads: int, tp: int, launched: int, block_h: int) -> None:
    there = Geometry(heads, tp).padded()
    assert (there.local_heads, there.block_h, there.padded()) == (launched, block_h, there)


def test_a_rank_that_is_filled_up_says_so_and_how_to_see_it() -> None:
    assert str(default_geometry()).endswith("(SGLang launches decode for 64, block_h 32: see --tp 1)")
    assert str(Geometry(96, 8)).endswith("(SGLang launches decode for 64, block_h 32)")


def test_a_kernel_of_a_ranks_own_heads_is_said_to_leave_the_padding_out() -> None:
    left_out = "(of the 64 that SGLang pads them to, the kernel attends to these)"
    assert default_geometry().told(own_heads=True).endswith(left_out)
    assert Geometry(64, 1).told(own_heads=True) == str(Geometry(64, 1))
    assert "SGLang" not in str(Geometry(64, 1))


@pytest.mark.parametrize(("heads", "tp"), [(64, 3), (64, 128), (64, 0), (0, 1), (256, 1)])
def test_heads_that_cannot_be_split_or_held_are_refused(heads: int, tp: int) -> None:
    with pytest.raises(GeometryError):
        Geometry(heads, tp)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"head_dim": 576}, "448 + 64"),
        ({"qk_rope_head_dim": 128}, "448 + 64"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"index_topk": "512"}, "index_topk"),
    ],
)
def test_model_that_the_layout_cannot_hold_is_refused_by_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(GeometryError, match=named.replace("+", r"\+")):
        geometry_of({**DEEPSEEK_V4_FLASH, **change})


def test_split_head_dims_are_read_where_config_gives_them() -> None:
    config = {k: v for k, v in DEEPSEEK_V4_FLASH.items() if k != "head_dim"}
    assert geometry_of({**config, "qk_nope_head_dim": 448}).head_dim == 512


def test_config_is_read_from_file_or_model_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V4_FLASH))
    assert read_geometry(tmp_path, 8) == read_geometry(tmp_path / "config.json", 8) == geometry_of(DEEPSEEK_V4_FLASH, 8)


@pytest.mark.parametrize("text", ["[]", "{", ""])
def test_config_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(GeometryError, match=r"config\.json"):
        read_geometry(tmp_path)
