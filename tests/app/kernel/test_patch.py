"""From pristine file to patched file: on SGLang's real kernel and on made ones."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import (
    ConstantMissingError,
    KernelMissingError,
    KeyUnknownError,
    PatchError,
    UnknownBaseError,
)
from app.kernel.autotune import read_configs, read_key
from app.kernel.patch import difference, patch_kernel, rewrite
from app.kernel.upstream import Base, fetch_base, pinned, sha256
from app.kernel.variant import Change, KernelConfig, Target, Variant
from app.kernel.variants import load_variants

STOCK = "_tiled_sparse_decode_kernel"
V2 = Change(configs=(KernelConfig({"BLOCK_T": 16}, 4, 3),), key=("topk_rounded",))
CONSTANTS = """\
TUNED: dict[str, int] = {}  # kept
LIMIT = (4)
TWICE = 1
if LIMIT:
    TWICE = 2
MADE = len("")
def k(): ...
"""


@pytest.fixture(scope="module")
def base() -> Base:
    return fetch_base()


def variant_of(module: str, kernel: str, change: Change) -> Variant:
    return Variant("made", None, "triton", Target(module, kernel), change, "made", {}, "open", Path("made.yaml"))


def test_v2_changes_only_the_configs_of_the_real_file(base: Base) -> None:
    old = base.text[base.text.index("    configs=[") : base.text.index('    key=["topk_rounded"]')]
    new = '    configs=[\n        triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=3),\n    ],\n'
    patched = patch_kernel(base, variant_of(base.module, STOCK, V2))
    assert patched.text == base.text.replace(old, new)
    assert patched.sha256 == sha256(patched.text.encode())
    assert patched.edits == patched.diff
    assert (patched.base_sha256, patched.kernel, patched.unchanged) == (pinned().file_sha256, STOCK, False)


@pytest.mark.parametrize("name", ["upstream", "flashinfer", "flashmla"])
def test_a_variant_without_a_change_keeps_the_file(base: Base, name: str) -> None:
    patched = patch_kernel(base, load_variants().get(name))
    assert (patched.text, patched.diff, patched.unchanged, patched.kernel) == (base.text, "", True, STOCK)


def test_the_stock_list_written_as_a_variant_is_no_change(base: Base) -> None:
    change = Change(configs=tuple(read_configs(base.text, STOCK)), key=read_key(base.text, STOCK))
    assert patch_kernel(base, variant_of(base.module, STOCK, change)).unchanged


def test_the_stock_file_reads_as_its_published_list(base: Base) -> None:
    assert " ".join(map(str, read_configs(base.text, STOCK))) == "(16,4,2) (16,8,2) (32,8,2)"
    assert read_key(base.text, STOCK) == ("topk_rounded",)


def test_a_batch_key_is_refused_on_the_stock_kernel_with_its_arguments(base: Base) -> None:
    change = Change(key=("topk_rounded", "batch_rounded"))
    with pytest.raises(
        KeyUnknownError,
        match=r"made cannot change sglang/.*: key batch_rounded names no argument .* first: topk_rounded(, \w+){9}$",
    ):
        patch_kernel(base, variant_of(base.module, STOCK, change))


def test_patching_starts_from_the_pristine_file_only(base: Base) -> None:
    patched = patch_kernel(base, variant_of(base.module, STOCK, V2))
    with pytest.raises(UnknownBaseError, match=f"has SHA-256 {patched.sha256}, pristine is {base.sha256}"):
        patch_kernel(replace(base, text=patched.text), variant_of(base.module, STOCK, V2))


def test_a_base_of_another_module_is_refused(base: Base) -> None:
    with pytest.raises(KernelMissingError, match=r"made changes sglang\.other; this base is sglang\.kernels"):
        patch_kernel(base, variant_of("sglang.other", STOCK, V2))


def test_the_diff_is_what_git_applies(base: Base, tmp_path: Path) -> None:
    text = base.text.replace("\n", "\r\n").rstrip()
    source = replace(base, text=text, sha256=sha256(text.encode()))
    patched = patch_kernel(source, variant_of(base.module, STOCK, V2))
    (file := tmp_path / base.relative_path).parent.mkdir(parents=True)
    file.write_bytes(text.encode())
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patched.diff.encode(), check=True)
    assert file.read_bytes() == patched.text.encode()


def test_the_diff_of_a_last_line_says_that_no_newline_follows() -> None:
    assert difference("a", "b", "f.py").splitlines()[3:] == [
        "-a",
        r"\ No newline at end of file",
        "+b",
        r"\ No newline at end of file",
    ]


def test_constants_are_rewritten_in_place() -> None:
    result = rewrite(CONSTANTS, "k", Change(constants={"TUNED": {"a": [1, None, True]}, "LIMIT": 8}))
    assert result == CONSTANTS.replace("{}", "{'a': [1, None, True]}").replace("(4)", "(8)")


def test_an_equal_constant_keeps_its_spelling() -> None:
    assert rewrite(CONSTANTS.replace("4", "0x04"), "k", Change(constants={"LIMIT": 4})).count("0x04") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NONE", "NONE is not there; literals at module level: LIMIT, TUNED"),
        ("TWICE", "TWICE is assigned 2 times"),
        ("MADE", "line 6: MADE is not a plain literal"),
    ],
)
def test_a_constant_that_is_no_single_literal_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConstantMissingError, match=said):
        rewrite(CONSTANTS, "k", Change(constants={name: 1}))


def test_a_replacement_file_is_swapped_in_first_and_then_rewritten(base: Base, tmp_path: Path) -> None:
    own = base.text.replace(f"def {STOCK}(", "def ours(").replace("num_stages=2", "num_stages=1")
    (tmp_path / "ours.py").write_text(own)
    change = replace(V2, file=Path("ours.py"))
    patched = patch_kernel(base, variant_of(base.module, "ours", change), tmp_path)
    assert patched.text == rewrite(own, "ours", V2)
    assert patched.edits == difference(own, patched.text, "ours.py")
    assert (patched.kernel, patched.base_sha256, patched.relative_path) == ("ours", base.sha256, base.relative_path)


@pytest.mark.parametrize("file", ["../ours.py", "none.py"])
def test_a_replacement_file_outside_the_repository_is_refused(base: Base, tmp_path: Path, file: str) -> None:
    (tmp_path / "ours.py").write_text("")
    (tmp_path / "inner").mkdir()
    with pytest.raises(PatchError, match="replacement file"):
        patch_kernel(base, variant_of(base.module, STOCK, Change(file=Path(file))), tmp_path / "inner")


def test_a_replacement_that_does_not_compile_is_refused(base: Base, tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text("def k(:\n")
    with pytest.raises(PatchError, match=r"made cannot change ours\.py: line 1 does not compile: "):
        patch_kernel(base, variant_of(base.module, "k", Change(file=Path("ours.py"))), tmp_path)
