"""The offline search races every choice that serves, and what is said of its spills is what compiling finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.gate.named import check_named
from app.kernel.variants import load_variants
from kernels.sparse_mla_decode import Choice
from kernels.tuning import MERGES, TILES

DOCS = Path(__file__).parents[2] / "docs" / "kernel.md"
TABLE = load_variants().get("fast").change.constants["TUNED"]
LINE = re.compile(r"^\| (\d+), (\d+), (\d+), (\w+) \| ([\d, ]+) \| .* \| (\d+) / (\d+) \| \d \|$", re.MULTILINE)


def _choices(arch: str) -> list[Choice]:
    assert isinstance(TABLE, dict)
    return [Choice(*row[3:]) for row in TABLE[arch]]


@pytest.mark.parametrize("arch", ["90", "120"])
def test_search_races_every_choice_of_the_table(arch: str) -> None:
    for block_t, warps, stages, _, registers, merge in _choices(arch):
        assert (block_t, warps, stages, registers) in TILES
        assert merge in MERGES


def test_search_races_every_capped_choice_without_its_cap() -> None:
    assert {(*tile[:3], 0) for tile in TILES if tile[3]} <= set(TILES)


@pytest.mark.slow
def test_spills_in_the_documentation_are_those_of_the_newest_triton() -> None:
    said = {}
    for *tile, registers, rows, two, one in LINE.findall(DOCS.read_text()):
        choice = (*map(int, tile), 0 if registers == "any" else int(registers))
        for row in map(int, rows.split(",")):
            assert (*_choices("90")[row - 1][:3], _choices("90")[row - 1].max_registers) == choice
        said[choice] = [int(two), int(one)]
    found: dict[tuple[int, ...], list[int]] = {}
    for r in check_named("fast", arch=90).resources:
        constants = r.config.constants
        tile = (int(constants["BLOCK_T"]), r.config.num_warps, r.config.num_stages, int(constants.get("maxnreg", 0)))
        found.setdefault(tile, []).append(r.spill_bytes)
    assert said == found
