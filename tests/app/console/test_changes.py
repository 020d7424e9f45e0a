from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.console.changes import from_control, from_pristine, show_diff, show_kernels
from app.errors import UsageError
from app.kernel.patch import patch_kernel
from app.kernel.upstream import fetch_base, pinned, sha256
from app.kernel.variant import Change, KernelConfig, Target, Variant
from app.kernel.variants import load_variants

REGISTRY = load_variants()


def changed(text: str) -> list[str]:
    """Changed lines of a diff, stripped."""
    return [" ".join(line.split()) for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_against_its_control_only_the_variants_own_change_shows() -> None:
    text = from_control(REGISTRY.get("v1"), REGISTRY, "")
    assert [line[0] for line in changed(text)] == ["-", "+"]
    assert ["num_warps=4" in changed(text)[0], "num_warps=8" in changed(text)[1]] == [True, True]


def test_against_pristine_a_replaced_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_diff("v1", "", "pristine")
    assert capsys.readouterr().out.startswith("# v1 replaces the whole of ")


@pytest.mark.parametrize("name", ["aa", "upstream"])
def test_a_variant_of_its_controls_file_says_so(name: str) -> None:
    assert f"{name} and its control" in from_control(REGISTRY.get(name), REGISTRY, "")


def test_a_control_that_is_reached_by_another_selector_is_told() -> None:
    assert from_control(REGISTRY.get("upstream"), REGISTRY, "").startswith("# flashinfer runs by selector flashinfer")


def test_a_variant_that_changes_nothing_leaves_the_file_as_it_is() -> None:
    assert "as it is" in from_pristine(replace(REGISTRY.get("upstream"), change=Change()), "")


@pytest.mark.parametrize(
    ("name", "against", "says"), [("baseline", "control", "has no control"), ("v1", "v2", "known")]
)
def test_what_cannot_be_compared_is_refused(name: str, against: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        show_diff(name, "", against)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Variant:
    """A variant whose file is a copy of SGLang's with one line edited, and whose config is changed on top."""
    text = fetch_base().text.replace("import triton\n", "import triton  # edited\n", 1)
    (tmp_path / "copy.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr("app.console.changes.patch_kernel", partial(patch_kernel, root=tmp_path))
    config = KernelConfig({"BLOCK_T": 16}, 2, 2)
    return replace(REGISTRY.get("upstream"), name="mine", change=Change(file=Path("copy.py"), configs=(config,)))


def test_a_changed_copy_shows_every_edit_against_sglangs_file(copied: Variant) -> None:
    text = from_pristine(copied, "")
    assert {"+import triton # edited", "-import triton"} <= set(changed(text))
    assert any("num_warps=2" in line for line in changed(text))
    assert text.startswith("# mine replaces the whole of ")


def test_a_kernel_of_its_own_is_shown_whole_only_when_asked() -> None:
    inside, whole = (from_pristine(REGISTRY.get("v1"), "", whole=asked) for asked in (False, True))
    assert [len(changed(inside)), "--against pristine" in inside] == [2, True]
    assert len(changed(whole)) > 500


def test_a_file_of_another_module_is_held_against_its_own_control() -> None:
    target = Target("sglang.kernels.ops.diffusion.triton.scale_shift", "_fused_scale_shift_4d_kernel")
    change = Change(configs=(KernelConfig({"BLOCK_N": 512}, 4, 2),))
    mine = replace(REGISTRY.get("upstream"), target=target, change=change)
    text = from_control(mine, REGISTRY, "")
    assert text.splitlines()[1] == "--- a/sglang/kernels/ops/diffusion/triton/scale_shift.py"
    assert any("BLOCK_N" in line for line in changed(text))


def test_kernels_are_listed_with_files_that_are_pristine(capsys: pytest.CaptureFixture[str]) -> None:
    show_kernels(as_json=True)
    listed = {entry["kernel"]: entry for entry in json.loads(capsys.readouterr().out)}
    stock = listed[pinned().kernel]
    assert (len(listed), stock["configs"]) == (33, 3)
    assert sha256(Path(stock["pristine"]).read_bytes()) == pinned().file_sha256
