"""A kernel is cut out with all it needs and nothing else."""

from __future__ import annotations

import pytest

from kernels.extract import ExtractError, extract_kernel, parameters
from tests.kernels.samples import DOT


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
