"""The patcher over every @triton.autotune of SGLang's wheel, checked against what the tokenizer alone sees."""

from __future__ import annotations

import functools
import io
import itertools
import py_compile
import re
import tokenize
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.errors import DecoratorUnknownError, PatchError
from app.kernel.autotune import read_configs
from app.kernel.patch import PatchedKernel, patch_kernel, rewrite
from app.kernel.upstream import Base, default_cache, fetch_wheel, member_base, pinned
from app.kernel.variant import Change, KernelConfig, Target, Variant


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one decorator of the wheel; span: where it lies, found by the tokenizer alone."""

    base: Base
    kernel: str
    span: tuple[int, int] | None
    change: Change
    result: PatchedKernel | PatchError


@pytest.fixture(scope="module")
def attempts() -> list[Attempt]:
    pin, wheel = pinned(), fetch_wheel(pinned(), default_cache())
    with zipfile.ZipFile(wheel) as archive:
        members = [n for n in archive.namelist() if n.endswith(".py") and b"@triton.autotune" in archive.read(n)]
    bases = [member_base(pin, wheel, member) for member in members]
    return [attempt(base, kernel) for base in bases for kernel in decorated(base.text)]


def attempt(base: Base, kernel: str) -> Attempt:
    span = live_decorators(base.text).get(kernel)
    # Two kernels keep their lists elsewhere in the file.
    elsewhere = {"_sparse_mla_fwd_kernel": ["BLOCK_N"], "_causal_conv1d_fwd_with_prefix_kernel": ["BLOCK_D", "BLOCK_T"]}
    shown = re.findall(r'"(\w+)":', base.text[slice(*span)]) if span else []
    names = elsewhere.get(kernel) or [name for name in dict.fromkeys(shown) if name != "early_config_prune"]
    change = Change(configs=(KernelConfig(dict.fromkeys(names, 64), 2, 5),))
    try:
        return Attempt(
            base,
            kernel,
            span,
            change,
            patch_kernel(
                base,
                Variant(
                    "made", None, "triton", Target(base.module, kernel), change, "made", {}, "open", Path("made.yaml")
                ),
            ),
        )
    except PatchError as error:
        return Attempt(base, kernel, span, change, error)


def decorated(text: str) -> list[str]:
    return re.findall(r"@triton\.autotune\(.*?\ndef (\w+)\(", text, re.DOTALL)


@functools.cache
def live_decorators(text: str) -> dict[str, tuple[int, int]]:
    starts = [0, *itertools.accumulate(map(len, io.StringIO(text)))]
    found: dict[str, tuple[int, int]] = {}
    begin: int | None = None
    end = depth = 0
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for i, token in enumerate(tokens):
        if token.string == "@" and [t.string for t in tokens[i : i + 4]] == ["@", "triton", ".", "autotune"]:
            begin, end, depth = starts[token.start[0] - 1] + token.start[1], 0, 0
        if begin is not None and not end and token.string in ("(", "[", "{", ")", "]", "}"):
            depth += 1 if token.string in "([{" else -1
            end = 0 if depth else starts[token.end[0] - 1] + token.end[1]
        if begin is not None and token.string == "def":
            found[tokens[i + 1].string], begin = (begin, end), None
    return found


def test_every_decorator_of_the_wheel_is_patched_or_refused_by_name(attempts: list[Attempt]) -> None:
    refused = {a.kernel: str(a.result) for a in attempts if isinstance(a.result, DecoratorUnknownError)}
    patched = [a for a in attempts if isinstance(a.result, PatchedKernel)]
    assert (len(attempts), len(patched), len(refused)) == (38, 33, 5)
    assert all("is commented out" in said for said in refused.values())


def test_no_byte_outside_any_decorator_of_the_wheel_moves(attempts: list[Attempt]) -> None:
    for a in attempts:
        if isinstance(a.result, PatchedKernel):
            assert a.span is not None
            assert a.result.text != a.base.text
            assert a.result.text.startswith(a.base.text[: a.span[0]])
            assert a.result.text.endswith(a.base.text[a.span[1] - 1 :])
            assert len(live_decorators(a.result.text)) == len(live_decorators(a.base.text))


def test_a_second_patch_of_any_kernel_of_the_wheel_changes_nothing(attempts: list[Attempt]) -> None:
    for a in attempts:
        if isinstance(a.result, PatchedKernel):
            assert rewrite(a.result.text, a.kernel, a.change) == a.result.text
            assert read_configs(a.result.text, a.kernel) == list(a.change.configs or ())


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_every_patched_file_of_the_wheel_compiles(attempts: list[Attempt], tmp_path: Path) -> None:
    for a in attempts:
        if isinstance(a.result, PatchedKernel):
            (file := tmp_path / f"{a.kernel}.py").write_bytes(a.result.text.encode())
            py_compile.compile(str(file), doraise=True)
