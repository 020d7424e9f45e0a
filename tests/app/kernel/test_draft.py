"""A new variant's file: sound as it is written, true in what it explains, refused where it cannot be."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import UsageError, VariantError
from app.gate.gate import check
from app.kernel.draft import draft_text, write_draft
from app.kernel.patch import read_configs
from app.kernel.upstream import Base, fetch_base
from app.kernel.variant import Change, KernelConfig, Target
from app.kernel.variant_files import read_variant
from app.kernel.variants import load_variants
from tests.kernels.samples import DOT, fake_toolchain, write_signature

SHIPPED = load_variants()
PINNED = "name: pinned\nselector: triton\ntarget: {module: sglang.x, kernel: k}\nhypothesis: h\nstatus: control\n"


def folder_with(tmp_path: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def read(tmp_path: Path, text: str) -> Change:
    (path := tmp_path / "mine.yaml").write_text(text)
    return read_variant(path, ROOT).variant.change


@pytest.mark.parametrize("origin", ["pinned", "baseline", "v3", "fast"])
def test_a_draft_has_the_change_of_its_origin_which_is_its_control(tmp_path: Path, origin: str) -> None:
    (tmp_path / "mine.yaml").write_text(draft_text("mine", found := SHIPPED.get(origin)))
    mine = read_variant(tmp_path / "mine.yaml", ROOT).variant
    assert (mine.name, mine.control, mine.target, mine.change) == ("mine", origin, found.target, found.change)
    assert (mine.prediction, mine.status) == ({}, "planned")


def test_a_draft_of_a_file_left_as_it_is_lists_the_configs_of_that_file(tmp_path: Path) -> None:
    base = fetch_base()
    change = read(tmp_path, draft_text("mine", SHIPPED.get("upstream")))
    assert change == Change(configs=tuple(read_configs(base.text, str(base.kernel))))


@pytest.mark.parametrize("inside", ["", "target", "change"])
@pytest.mark.parametrize("origin", ["pinned", "upstream"])
def test_every_key_that_a_variant_may_have_stands_there_below_a_comment(
    tmp_path: Path, inside: str, origin: str
) -> None:
    lines = draft_text("mine", SHIPPED.get(origin)).splitlines()
    at = lines.index(f"{inside}:") + 1 if inside else 0
    wrong = [*lines[:at], f"{'  ' if inside else ''}wrong: 1", *lines[at:]]
    with pytest.raises(VariantError, match="unknown key 'wrong'") as refused:
        read(tmp_path, "\n".join(wrong))
    for key in re.findall(r"\w+", str(refused.value).partition("allowed: ")[2]):
        (place,) = (i for i, line in enumerate(lines) if re.match(rf" *(?:# )?{key}:", line))
        # The head of a mapping may be explained key by key.
        assert re.match(" *# ", lines[place - 1]) or lines[place + 1].startswith("  # ")


def test_what_is_commented_out_is_sound_too(tmp_path: Path) -> None:
    base = replace(SHIPPED.get("upstream"), change=Change(key=("topk",)))
    commented = r"^( *)# ((?:file|constants|configs|prediction):.*|  (?:-|\d+:) .*)$"
    text = re.sub(commented, r"\1\2", draft_text("mine", base), flags=re.MULTILINE)
    (tmp_path / "mine.yaml").write_text(text)
    mine = read_variant(tmp_path / "mine.yaml", ROOT).variant
    assert (mine.change.file, mine.change.constants) == (Path("kernels/sparse_mla_decode.py"), {"NAME": 1})
    assert mine.change.configs == (KernelConfig({"BLOCK_T": 16}, 4, 2),)
    assert list(mine.prediction) == [1, 96]


def test_one_number_changed_takes_a_draft_through_the_gate(tmp_path: Path) -> None:
    change = Change(configs=(KernelConfig({"BLOCK": 64}, 4, 2),), key=("n",))
    control = replace(SHIPPED.get("pinned"), target=Target("pkg.mod", "_demo_kernel"), change=change)
    base = Base(DOT, hashlib.sha256(DOT.encode()).hexdigest(), "0", "pkg.mod", "pkg/mod.py", "_demo_kernel")
    tools = {"toolchain": fake_toolchain(tmp_path), "signatures": write_signature(tmp_path)}
    text = draft_text("mine", control)
    assert text.count("num_stages: 2") == 1
    for told, kinds in ((text, ["no-op"]), (text.replace("num_stages: 2", "num_stages: 3"), [])):
        mine = replace(control, name="mine", change=read(tmp_path, told))
        assert [finding.kind for finding in check(mine, control, base, **tools).findings] == kinds  # type: ignore[arg-type]


def test_a_name_that_yaml_takes_for_something_else_stays_a_name(tmp_path: Path) -> None:
    path = write_draft(
        "on", "pinned", folder_with(tmp_path, pinned=PINNED.replace("target", "change: {key: [n]}\ntarget"))
    )
    assert load_variants(tmp_path, strict=True).get("on").path.name == path.name == "on.yaml"


@pytest.mark.parametrize(
    ("name", "origin", "says"),
    [
        ("Mine", "pinned", "--name 'Mine' must be 1 to 40 of a-z"),
        ("../mine", "pinned", "must be 1 to 40 of a-z"),
        ("", "pinned", "must be 1 to 40 of a-z"),
        ("stable", "pinned", "reserved"),
        ("pinned", "pinned", "--name 'pinned' is the name of .*pinned.yaml already; choose another"),
        ("inner", "pinned", "--name 'inner' is the name of .*outer.yaml already"),
        ("faulty", "pinned", "--name 'faulty' is the name of .*faulty.yaml already"),
        ("mine", "nowhere", "unknown variant 'nowhere'; known: flashinfer, inner, pinned"),
        (
            "mine",
            "flashinfer",
            "--from 'flashinfer' runs no kernel file to change; start from one whose selector is triton",
        ),
    ],
)
def test_a_draft_that_cannot_be_is_refused_and_nothing_written(
    tmp_path: Path, name: str, origin: str, says: str
) -> None:
    other = "name: flashinfer\nselector: flashinfer\nhypothesis: h\nstatus: control\n"
    inner = PINNED.replace("pinned", "inner")
    folder = folder_with(tmp_path, pinned=PINNED, flashinfer=other, outer=inner, faulty="name: 1\n")
    held = {path: path.read_text() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=says):
        write_draft(name, origin, folder)
    assert {path: path.read_text() for path in folder.iterdir()} == held
