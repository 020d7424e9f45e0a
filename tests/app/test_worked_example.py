"""Every figure and line that docs/example.md shows as printed is what the code says now."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pytest

from app.console import planning
from app.console.changes import from_pristine
from app.environment import ROOT
from app.gate.report import ROWS
from app.kernel.variant import Variant
from app.kernel.variants import load_variants
from kernels.geometry import default_geometry
from kernels.resources import Resources, compile_all
from kernels.signature import load_signature
from kernels.toolchain import installed_toolchain

PAGE = (ROOT / "docs" / "example.md").read_text(encoding="utf-8")
VARIANTS = load_variants()


def printed(command: str) -> list[str]:
    """What the page shows under a command, up to the next command or the block's end."""
    _, shown, after = PAGE.partition(f"$ {command}\n")
    assert shown, command
    return re.split(r"^(?:```|\$ )", after, flags=re.MULTILINE)[0].splitlines()


def compiled(variant: Variant) -> Resources:
    """The variant's one config in the first way of launching."""
    file, configs, target = variant.change.file, variant.change.configs, variant.target
    assert file is not None
    assert target is not None
    first = replace(load_signature(target.kernel), others=())
    text = (ROOT / file).read_text(encoding="utf-8")
    (found,) = compile_all(text, target.kernel, first, configs or (), 120, default_geometry(), installed_toolchain())
    return found


@pytest.mark.parametrize("name", ["baseline", "v1", "v2"])
def test_the_table_names_the_configs_of_the_variants(name: str) -> None:
    assert f"| `{name}` | {', '.join(map(str, VARIANTS.get(name).change.configs or ()))} |" in PAGE


def test_the_change_shown_is_the_variants() -> None:
    changes = from_pristine(VARIANTS.get("v1"), "").splitlines()
    shown = printed("invoke diff --variant v1")
    assert shown == [line for line in changes if line in shown]
    assert len(shown) == 2


def test_the_gate_finds_the_figures_shown() -> None:
    found = [compiled(VARIANTS.get(name)) for name in ("v1", "pinned")]
    names, configs, *figures, verdict = printed("invoke check --variant v1")
    assert (names.split(), configs.split()) == (["v1", "pinned"], [str(r.config) for r in found])
    said = {label: [str(figure(r)) for r in found] for label, figure in ROWS}
    for row in figures:
        label, *values = re.split(r"\s{2,}", row)
        assert (label, values) == (label, said[label])
    target = VARIANTS.get("v1").target
    assert target is not None
    geometry = default_geometry().told(bool(load_signature(target.kernel).own_heads))
    assert verdict == f"v1: buildable; compiled for sm_120 with Triton {installed_toolchain().version}, {geometry}"


def test_the_draw_names_the_configs_of_baseline() -> None:
    configs = " ".join(map(str, VARIANTS.get("baseline").change.configs or ()))
    (line,) = printed("invoke check --variant baseline")
    assert line.startswith(f"draw: 3 configs survive in {load_signature('_sparse_mla_decode_kernel').use}: {configs};")


def test_the_plan_takes_as_long_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pilot = planning.pilot_of("latest", "0.7", "1,8,48,64,80,96", "mirrored")
    planning.show_plan(pilot, "3", "0.9", "", 3, planning.pace(600, 90), False)
    said = capsys.readouterr().out.splitlines()
    shown = printed("invoke plan --sd 0.7 --effect 3 --variants 3 --start-s 600 --level-s 90")
    assert len(shown) == 3
    assert [line for line in shown if line not in said] == []
    _, blocks = shown[-1].split("invoke compare ")
    assert f"invoke compare --variants v1,v2 --concurrency 1,8,48,64,80,96 {blocks} " in PAGE


def test_the_times_on_an_h200_are_those_recorded() -> None:
    case = {"batch": "96", "heads": "16", "topk": "512", "extra": "0", "lengths": "full"}
    with (ROOT / "kernels" / "results" / "h200.csv").open(newline="") as source:
        rows = [row for row in csv.DictReader(source) if case.items() <= row.items()]
    us = {row["provider"]: f"{float(row['median_us']):.1f}" for row in rows}
    assert f"took {us['pinned']} us as `pinned`, {us['v1']} as `v1` and {us['v2']} as `v2`" in PAGE
