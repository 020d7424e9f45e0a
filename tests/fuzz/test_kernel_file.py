from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kernel.autotune import read_configs, read_key
from app.kernel.patch import rewrite
from app.kernel.source import find_kernel, parse_source
from app.kernel.upstream import Base, default_cache, fetch_base, is_cached, pinned
from app.kernel.variant import Change, KernelConfig
from tests.fuzz.trying import refusal, tries

WANTED = Change(configs=(KernelConfig({"BLOCK_T": 16}, 8, 2),), key=("topk_rounded",))
KERNEL = "_tiled_sparse_decode_kernel"
SMALL = """import triton
import triton.language as tl

TUNED = {}


@triton.autotune(configs=[triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2)], key=["topk_rounded"])
@triton.jit
def _tiled_sparse_decode_kernel(q, topk_rounded, BLOCK_T: tl.constexpr):
    pass
"""
HUGE = "0x" + "f" * 5000
PIECES = st.sampled_from(
    ["(", ")", "[", "]", "{", "}", "\n", "\r", "#", '"', "'", '"""', ",", "*", "**", "=", ":=", "lambda: ", "\\", "é"]
    + ["\0", "\f", "\ufeff", "\ud800", "# -*- coding: utf-7 -*-\n", "@", "-", "~", ".a", "f'{", "yield ", "await "]
    + [HUGE, "9" * 5000, "1e999", "1j", "b''", "...", "None", "-" * 3000, "(" * 150, "[" * 3000, ".a" * 3000]
    + ["+1" * 3000, "if x else " * 300, "triton.Config", "triton.autotune", "for x in y", "globals()", "TUNED = 1\n"]
)


@pytest.fixture(scope="module")
def real() -> Base:
    pin = pinned()
    if not is_cached(pin, default_cache()):
        pytest.skip(f"{pin.wheel} is not cached; invoke diff --variant v2 fetches it")
    return fetch_base()


@st.composite
def mutated(draw: st.DrawFn, text: str, near: tuple[int, int]) -> str:
    for _ in range(draw(st.integers(1, 3))):
        place, length = draw(st.integers(*near)), draw(st.integers(0, 12))
        text = text[:place] + draw(PIECES | st.text(max_size=4)) + text[place + length :]
    return text


def check(text: str) -> None:
    refusal(lambda: read_configs(text, KERNEL))
    refusal(lambda: read_key(text, KERNEL))
    refusal(lambda: _patched_twice(text))
    refusal(lambda: rewrite(text, KERNEL, Change(constants={"TUNED": {"a": [1, None]}})))


def _patched_twice(text: str) -> None:
    once = rewrite(text, KERNEL, WANTED)
    assert read_configs(once, KERNEL) == list(WANTED.configs or ())
    assert rewrite(once, KERNEL, WANTED) == once


@tries(250)
@given(text=mutated(SMALL, (0, len(SMALL))))
def test_small_file_with_pieces_put_in_is_patched_or_refused(text: str) -> None:
    check(text)


@tries(25)
@given(data=st.data())
def test_real_file_damaged_at_its_decorator_is_patched_or_refused(real: Base, data: st.DataObject) -> None:
    begin = real.text.index("@triton.autotune")
    check(data.draw(mutated(real.text, (begin - 200, real.text.index(f"def {KERNEL}") + 200))))


@tries(25)
@given(data=st.data())
def test_real_file_damaged_anywhere_is_patched_or_refused(real: Base, data: st.DataObject) -> None:
    check(data.draw(mutated(real.text, (0, len(real.text)))))


@tries(80)
@given(value=st.text(max_size=30), name=st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True))
def test_a_constants_text_stays_a_text_in_the_patched_file(value: str, name: str) -> None:
    source = SMALL.replace("TUNED", name) if name not in SMALL else SMALL
    name = name if source is not SMALL else "TUNED"
    change = Change(configs=(KernelConfig({"BLOCK_T": value}, 8, 2),), constants={name: value})

    def patch() -> None:
        tree = ast.parse(rewrite(source, KERNEL, change))
        assert [
            n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func).startswith(("os", "exec"))
        ] == []
        assert value in [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        assert len(tree.body) == len(ast.parse(source).body)

    refusal(patch)


@tries(30)
@given(name=st.text(max_size=20) | st.sampled_from([KERNEL, "os.system", "__import__('os')", "\ud800"]))
def test_any_kernel_name_is_found_or_refused(name: str) -> None:
    line = refusal(lambda: find_kernel(parse_source(SMALL), name))
    assert bool(line) == (name != KERNEL)
    assert not re.search(r"[\x00-\x1f]", line)
