"""One autotune decorator in every spelling: read, rewritten, or refused by name, with no other byte touched."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import (
    DecoratorUnknownError,
    EncodingUnknownError,
    KernelAmbiguousError,
    KernelMissingError,
    KeyUnknownError,
    LabError,
    PatchError,
)
from app.kernel.autotune import read_configs, read_key
from app.kernel.patch import rewrite
from app.kernel.variant import Change, KernelConfig

HEAD = "import triton\nimport triton.language as tl\n\n\n"
CALL = 'triton.autotune(configs=[triton.Config({"BLOCK_T": 16}, num_warps=4, num_stages=2)], key=["n"])'
KERNEL = "@triton.jit\ndef kernel(x, n, m, BLOCK_T: tl.constexpr):\n    pass\n"
WANTED = Change(configs=(KernelConfig({"BLOCK_T": 32}, 8, 3), KernelConfig({"BLOCK_T": 64}, 8, 3)), key=("n", "m"))


def file_with(call: str) -> str:
    return f"{HEAD}@{call}\n{KERNEL}"


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        "triton.autotune([triton.Config({'BLOCK_T': 16})], ['n'])",
        "triton.autotune(\n    #\n    configs=[  #\n        triton.Config({'BLOCK_T': 16}),\n    ],\n    key=['n'],\n)",
        "triton.autotune(configs=[triton.Config({'BLOCK_T': b}) for b in (16, 32)], key=['n'])",
        "triton.autotune(configs=CONFIGS, key=KEY, prune_configs_by={'early_config_prune': prune}, **more)",
        "triton.autotune(configs=made(), key=['n'], restore_value=['x'])",
        "triton.autotune(configs=CONFIGS + made(), key=('n',))",
        "triton.autotune(key=['n'], configs=(CONFIGS if FAST else made()))",
        "triton \\\n  .autotune(configs=[],key=[])",
        "(triton.autotune)(configs = [ ] , key = [ ] ,)",
    ],
)
def test_every_spelling_of_the_decorator_is_rewritten_once(call: str) -> None:
    text = file_with(call)
    result = rewrite(text, "kernel", WANTED)
    assert (read_configs(result, "kernel"), read_key(result, "kernel")) == (list(WANTED.configs or ()), WANTED.key)
    assert result.startswith(HEAD + "@")
    assert result.endswith(f")\n{KERNEL}")
    assert rewrite(result, "kernel", WANTED) == result


def test_comments_and_other_arguments_of_the_decorator_stay() -> None:
    call = "triton.autotune(\n    # why\n    configs=[],  # d\n    key=['n'],\n    warmup=3,\n)  # f"
    result = rewrite(file_with(call), "kernel", Change(key=("m",)))
    assert result == file_with(call.replace("['n']", '["m"]'))


def test_new_configs_are_laid_out_like_the_decorator_around_them() -> None:
    call = "triton.autotune(\n    configs=[],\n    key=['n'],\n)"
    rows = "".join(f'        triton.Config({{"BLOCK_T": {b}}}, num_warps=8, num_stages=3),\n' for b in (32, 64))
    result = rewrite(file_with(call), "kernel", Change(configs=WANTED.configs))
    assert result == file_with(call.replace("[]", f"[\n{rows}    ]"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n# end"])
@pytest.mark.parametrize("first", ["", "\ufeff", "# -*- coding: utf-8 -*-\n", '"""ü\t€"""; x = "ж"\n\x0c\n'])
def test_line_ends_marks_and_the_end_of_the_file_stay(end: str, last: str, first: str) -> None:
    before, after = f"{first}{HEAD}".replace("\n", end), f"{KERNEL}{last}".replace("\n", end)
    result = rewrite(f"{before}@{CALL}{end}{after}", "kernel", WANTED)
    middle = result[len(before) : -len(after)]
    assert result == before + middle + after
    assert middle.replace(end, "").isprintable()


def test_an_equal_list_keeps_its_spelling() -> None:
    text = file_with(
        "triton.autotune([triton.Config(dict_ := {})], ['n'])".replace("dict_ := {}", "{'BLOCK_T':16}, 4, 2")
    )
    change = Change(configs=(KernelConfig({"BLOCK_T": 16}, 4, 2),), key=("n",))
    assert rewrite(text, "kernel", change) == text


def test_names_that_the_file_gives_triton_are_followed() -> None:
    text = (
        "import triton as tr\nfrom triton import Config as C, autotune as tune\n"
        "@tune(configs=[C({'BLOCK_T': 16})], key=['n'])\n@tr.jit\ndef kernel(n, m, BLOCK_T): ...\n"
    )
    assert 'C({"BLOCK_T": 32}, num_warps=8, num_stages=3)' in rewrite(text, "kernel", WANTED)


def test_a_kernel_inside_a_function_keeps_its_indent() -> None:
    text = f"import triton\ndef make():\n\t@{CALL}\n\tdef kernel(n, m, BLOCK_T): ...\n\treturn kernel\n"
    assert '\t    triton.Config({"BLOCK_T": 32}' in rewrite(text, "kernel", WANTED)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("triton.autotune", "is not called"),
        ("triton.autotune(*ARGS)", "takes starred arguments"),
        ("triton.autotune(**ARGS)", "is given no configs by name or place"),
        ("triton.autotune(configs=[])", "it has no key argument to replace"),
        ("triton.autotune(configs=lambda: [], key=['n'])", "of the form Lambda"),
        ("triton.autotune(configs=(KEPT := []), key=['n'])", "of the form NamedExpr"),
        ("triton.autotune([triton.Config({}, 4, 2, pre_hook=hook)], ['n'])", "set pre_hook, which a variant cannot"),
        ("triton.autotune([triton.Config({}, maxnreg=128)], ['n'])", "set maxnreg, which a variant cannot"),
        ("triton.autotune([triton.Config({}, 4, 2, 1)], ['n'])", "set a fourth positional argument"),
        ("triton.autotune(configs=[], key=['n'], rep=" + "-" * 900 + "1)", "nested too deeply"),
        ("(triton\n.autotune(configs=[], key=['n']))", "cannot be read apart from the parentheses"),
        ("other.autotune(configs=[], key=['n'])", "has no triton.autotune decorator; its decorators: other.autotune"),
        (f"{CALL}\n@{CALL}", "has 2 autotune decorators"),
    ],
)
def test_a_decorator_that_cannot_be_rewritten_is_refused_by_name(call: str, said: str) -> None:
    with pytest.raises(DecoratorUnknownError, match=said.replace("(", r"\(")):
        rewrite(file_with(call), "kernel", WANTED)


def test_a_decorator_that_is_commented_out_is_named_with_its_line() -> None:
    with pytest.raises(DecoratorUnknownError, match="the one on line 5 is commented out"):
        rewrite(f"{HEAD}# @triton.autotune(\n#   configs=[])\n{KERNEL}", "kernel", WANTED)


def test_a_missing_kernel_is_refused_with_the_files_kernels() -> None:
    with pytest.raises(KernelMissingError, match="no function 'kernle'; the file's Triton kernels: kernel"):
        rewrite(file_with(CALL), "kernle", WANTED)


def test_two_functions_of_the_name_are_refused_with_their_lines() -> None:
    with pytest.raises(KernelAmbiguousError, match=r"2 functions are named 'kernel' \(lines 7, 11\)"):
        rewrite(file_with(CALL) + f"@{CALL}\n{KERNEL}", "kernel", WANTED)


def test_a_key_that_names_no_argument_is_refused_with_the_arguments() -> None:
    with pytest.raises(
        KeyUnknownError, match="key batch names no argument of 'kernel'; its arguments: x, n, m, BLOCK_T"
    ):
        rewrite(file_with(CALL), "kernel", Change(key=("n", "batch")))


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ({"BLOCK_T": 16, "BLOCK_Q": 16}, "BLOCK_Q names no argument of 'kernel'; its arguments: x, n, m, BLOCK_T"),
        ({}, "must set BLOCK_T too, as the configs of 'kernel' do"),
    ],
)
def test_a_config_that_does_not_fit_the_kernel_is_refused(constants: dict[str, int], said: str) -> None:
    with pytest.raises(KeyUnknownError, match=said):
        rewrite(file_with(CALL), "kernel", Change(configs=(KernelConfig(constants, 8, 3),)))


def test_constants_of_a_list_kept_under_a_name_are_found_there() -> None:
    text = "import triton\nC = [triton.Config({'BLOCK_T': 1})]\n@triton.autotune(C, [])\ndef kernel(n, BLOCK_T): ...\n"
    with pytest.raises(KeyUnknownError, match="must set BLOCK_T too"):
        rewrite(text, "kernel", Change(configs=(KernelConfig({}, 4, 2),)))


@pytest.mark.parametrize("text", ["# coding: latin-1\n", "# coding: none-such\n", "# \ud800\n"])
def test_a_text_that_is_not_utf8_is_refused(text: str) -> None:
    with pytest.raises(EncodingUnknownError):
        rewrite(text + file_with(CALL), "kernel", WANTED)


@pytest.mark.parametrize("text", ["def :\n", "x = 1\0\n", "(" * 300, "-" * 50_000 + "1"])
def test_a_text_that_is_not_python_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PatchError, match=r"^(line \d+|the file) does not compile") as caught:
        rewrite(text, "kernel", WANTED)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("configs", ["CONFIGS", "made()", "[triton.Config({'BLOCK_T': b}) for b in (1, 2)]"])
def test_configs_that_are_not_written_out_are_not_read(configs: str) -> None:
    with pytest.raises(DecoratorUnknownError, match="not a written-out list"):
        read_configs(file_with(f"triton.autotune(configs={configs}, key=[])"), "kernel")


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ("triton.Config({'BLOCK_T': SIZE})", "is not written out"),
        ("triton.Config({}, 4, 2, pre_hook=None)", "sets pre_hook"),
        ("config(16)", "is not a call of triton.Config"),
    ],
)
def test_a_config_that_is_not_written_out_is_not_read(element: str, said: str) -> None:
    with pytest.raises(DecoratorUnknownError, match=said):
        read_configs(file_with(f"triton.autotune(configs=[{element}], key=[])"), "kernel")


def test_left_out_fields_read_as_tritons_defaults() -> None:
    text = file_with("triton.autotune([triton.Config({'BLOCK_T': 16}), triton.Config(kwargs={}, num_stages=1)], [])")
    assert read_configs(text, "kernel") == [KernelConfig({"BLOCK_T": 16}, 4, 3), KernelConfig({}, 4, 1)]


SHORT = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PIECES = st.sampled_from(["(", ")", "[", "]", "{", "}", "\n", "#", '"', "'", ",", "*", "=", ":=", "lambda:", "\\", "é"])


@SHORT
@given(data=st.data(), end=st.sampled_from(["\n", "\r\n"]))
def test_a_damaged_decorator_is_rewritten_or_refused_and_nothing_else_moves(data: st.DataObject, end: str) -> None:
    place = data.draw(st.integers(0, len(CALL)))
    length = data.draw(st.integers(0, 10))
    damaged = CALL[:place] + data.draw(PIECES | st.text(max_size=4)) + CALL[place + length :]
    before, after = f"{HEAD}@".replace("\n", end), f"\n{KERNEL}".replace("\n", end)
    with contextlib.suppress(LabError):
        result = rewrite(before + damaged + after, "kernel", WANTED)
        assert result.startswith(before)
        assert result.endswith(after)
        assert rewrite(result, "kernel", WANTED) == result
