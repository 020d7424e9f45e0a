"""A kernel is cut out with all it needs and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernels.extract import ExtractError, extract_kernel, host_code, parameters
from tests.kernels.samples import DOT, MERGE


def test_files_that_differ_in_configs_and_host_code_give_the_same_text() -> None:
    other = DOT.replace("configs=[", "configs=[\n    ").replace("return UNUSED", "return 1")
    assert other != DOT
    assert extract_kernel(other, "_demo_kernel") == extract_kernel(DOT, "_demo_kernel")


@pytest.mark.parametrize("gone", ["module_that_is_not_here", "autotune", "def host"])
def test_what_the_kernel_does_not_need_is_left_out(gone: str) -> None:
    assert gone not in extract_kernel(DOT, "_demo_kernel")


@pytest.mark.parametrize("kept", ["import triton\n", "WIDTH = ", "def _twice", "@triton.jit"])
def test_what_the_kernel_reaches_is_kept(kept: str) -> None:
    assert kept in extract_kernel(DOT, "_demo_kernel")


def test_name_bound_under_a_condition_keeps_the_whole_condition() -> None:
    source = "if True:\n    A = 1\nelse:\n    A = 2\ndef k(x):\n    return x + A\n"
    assert extract_kernel(source, "k") == source


def test_future_import_is_kept() -> None:
    assert extract_kernel("from __future__ import annotations\ndef k(x): ...\n", "k").startswith("from __future__")


def test_unknown_kernel_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ExtractError, match=r"'nope'.*host, _twice, _demo_kernel"):
        extract_kernel(DOT, "nope")


def test_text_that_is_no_python_is_refused() -> None:
    with pytest.raises(ExtractError, match="not Python"):
        extract_kernel("def k(:\n", "k")


def test_parameters_tell_constants_and_defaults() -> None:
    found = parameters("def k(a, b: int, C: tl.constexpr, D: 'tl.constexpr' = 3): ...\n", "k")
    assert [(p.name, p.constexpr, p.has_default, p.default) for p in found] == [
        ("a", False, False, None), ("b", False, False, None), ("C", True, False, None), ("D", True, True, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("decorator", ["do_not_specialize=['b']", "do_not_specialize_on_alignment=(1,)"])
def test_parameters_tell_what_triton_is_told_not_to_specialise(decorator: str) -> None:
    found = parameters(f"@triton.jit({decorator})\ndef k(a, b, c): ...\n", "k")
    assert [p.specialised for p in found] == [True, False, True]


def _host(text: str) -> str:
    return host_code(text, "_demo_kernel", ["_merge_demo"])


@pytest.mark.parametrize(
    "changes",
    [
        ("acc = tl.dot(a, b, acc)", "acc = tl.dot(b, a, acc)"),
        ("return x + x", "return x * 2"),
        ("WIDTH = tl.constexpr(16)", "WIDTH = tl.constexpr(32)"),
        ("WEIGHT = 1", "WEIGHT = 2"),
        ("num_stages=2)", "num_stages=3)"),
    ],
)
def test_what_only_the_kernels_reach_is_not_of_the_host(changes: tuple[str, str]) -> None:
    assert (DOT + MERGE).count(changes[0]) == 1
    assert _host((DOT + MERGE).replace(*changes)) == _host(DOT + MERGE)


@pytest.mark.parametrize(
    "changes",
    [
        ("TRIES = 1", "TRIES = 2"),
        ("return TRIES, _merge_demo", "return _merge_demo"),
        ("@triton.jit\ndef _merge_demo", "@triton.heuristics({})\n@triton.jit\ndef _merge_demo"),
        ("n, BLOCK: tl.constexpr):", "m, BLOCK: tl.constexpr):"),
        ("@triton.jit\ndef _demo_kernel", "@triton.jit(do_not_specialize=['n'])\ndef _demo_kernel"),
    ],
)
def test_how_kernels_are_launched_is_of_the_host(changes: tuple[str, str]) -> None:
    assert (DOT + MERGE).count(changes[0]) == 1
    assert _host((DOT + MERGE).replace(*changes)) != _host(DOT + MERGE)


@pytest.mark.parametrize(
    "user", ["def other():\n    return WEIGHT\n", "@triton.jit\ndef _third():\n    return WEIGHT\n"]
)
def test_what_other_code_reaches_too_is_of_the_host(user: str) -> None:
    text = DOT + MERGE + user
    assert _host(text.replace("WEIGHT = 1", "WEIGHT = 2")) != _host(text)


HOST = "def _k(x): return x\ndef _m(x): return x\ndef host(x):\n    _k[x](x)\n    _m[x](x)\n"


def _renamed(text: str) -> str:
    return host_code(text.replace("_k", "_k2").replace("_m", "_m2"), "_k2", ["_m2"])


def test_what_kernels_are_called_is_not_of_the_host() -> None:
    assert _renamed(HOST) == host_code(HOST, "_k", ["_m"])


@pytest.mark.parametrize(
    "line", ["def ask(_k): _k(1)", "def ask():\n    import far as _k", "FAR = far._k", "FAR = far('_k')"]
)
def test_kernels_name_that_is_more_than_a_name_is_of_the_host(line: str) -> None:
    assert _renamed(HOST + line) != host_code(HOST + line, "_k", ["_m"])


def test_a_name_that_is_more_than_a_name_leaves_other_kernels_names_out() -> None:
    text = HOST + "FAR = far('_m')"
    assert host_code(text.replace("_k", "_k2"), "_k2", ["_m"]) == host_code(text, "_k", ["_m"])


IDLE = "@triton.jit\ndef _helps(x): return x\n@triton.jit\ndef _idle(x): return _helps(x)\n"


@pytest.mark.parametrize("name", ["_idle", "_helps"])
def test_what_a_kernel_that_is_never_launched_and_its_functions_are_called_is_not_of_the_host(name: str) -> None:
    text = HOST + IDLE + "def idle(x): _idle[x](x)\n"
    assert host_code(text.replace(name, "_other"), "_k", ["_m"]) == host_code(text, "_k", ["_m"])
    assert host_code(text.replace(f"{name}(x): return ", f"{name}(x): return 2 * "), "_k", ["_m"]) != host_code(
        text, "_k", ["_m"]
    )


def test_what_a_host_function_is_called_is_of_the_host() -> None:
    assert host_code(HOST.replace("def host", "def entry"), "_k", ["_m"]) != host_code(HOST, "_k", ["_m"])


def test_our_kernels_file_is_the_same_to_the_host_under_other_names_of_its_kernels() -> None:
    text = (Path(__file__).parents[2] / "kernels" / "sparse_mla_decode.py").read_text()
    kernel, renamed = "_sparse_mla_decode_kernel", text
    for name in set(re.findall(r"^@triton\.jit.*(?:\n .*|\n\))*\ndef (\w+)", text, re.MULTILINE)) - {kernel}:
        renamed = re.sub(rf"\b{name}\b", f"{name}_renamed", renamed)
    assert "_merge_kernel_renamed[" in renamed
    assert host_code(renamed, kernel) == host_code(text, kernel)


def test_kernels_that_swap_their_places_in_the_host_are_told_apart() -> None:
    swapped = HOST.replace("_k[", "_x[").replace("_m[", "_k[").replace("_x[", "_m[")
    assert _renamed(swapped) != host_code(HOST, "_k", ["_m"])
