"""Compiled facts of small kernels for GPUs that are not here; the cache is the test's own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from kernels import resources
from kernels.geometry import default_geometry
from kernels.resources import Resources, compile_all, compile_kernel
from kernels.signature import load_signature
from kernels.toolchain import Toolchain, ToolchainError, toolchain_of
from tests.kernels.samples import DOT, PLAIN, Config, write_signature


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # One cache for the session: equal requests of several tests compile once.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def _compile(folder: Path, source: str, *configs: Config, arch: int = 120) -> list[Resources]:
    signature = load_signature("_demo_kernel", write_signature(folder))
    return compile_all(source, "_demo_kernel", signature, configs or [Config()], arch, default_geometry())


@pytest.mark.parametrize("arch", [120, 90])
def test_dot_kernel_uses_tensor_cores_and_fits(tmp_path: Path, arch: int) -> None:
    (found,) = _compile(tmp_path, DOT, arch=arch)
    assert found.error is None
    assert found.fits
    assert found.mma > 0
    assert 0 < found.registers <= 255
    assert len(found.code_sha256) == 64
    assert found.warps_per_sm == 4 * found.ctas_per_sm > 0


def test_more_stages_need_more_shared_memory_and_other_code(tmp_path: Path) -> None:
    two, four = _compile(tmp_path, DOT, Config(num_stages=2), Config(num_stages=4))
    assert four.shared_bytes > two.shared_bytes
    assert four.identity != two.identity
    assert four.cp_async > 0


def test_stages_of_a_kernel_without_a_loop_change_nothing(tmp_path: Path) -> None:
    two, three = _compile(tmp_path, PLAIN, Config(num_stages=2), Config(num_stages=3))
    assert two.identity == three.identity


def test_config_over_the_limit_does_not_fit(tmp_path: Path) -> None:
    (found,) = _compile(tmp_path, DOT, Config({"BLOCK": 64}, 4, 14))
    assert found.error is None
    assert found.shared_bytes > 101376
    assert not found.fits


def test_failed_compilation_is_a_result_with_the_compilers_words(tmp_path: Path) -> None:
    (found,) = _compile(tmp_path, PLAIN.replace("_twice(x), mask", "no_such_name(x), mask"))
    assert found.error is not None
    assert "no_such_name" in found.error
    assert (found.fits, found.dropped) == (False, False)


def test_failed_static_assertion_is_dropped_as_tritons_autotuner_does(tmp_path: Path) -> None:
    (found,) = _compile(tmp_path, PLAIN.replace("    at =", "    tl.static_assert(BLOCK > 64)\n    at ="))
    assert (found.fits, found.dropped) == (False, True)


def test_missing_import_that_the_kernel_needs_is_a_result(tmp_path: Path) -> None:
    (found,) = _compile(tmp_path, PLAIN.replace("_twice(x), mask", "module_that_is_not_here.f(x), mask"))
    assert "module_that_is_not_here" in str(found.error)


def test_second_time_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _compile(tmp_path, PLAIN)
    monkeypatch.setattr(resources, "compile_requests", _must_not_compile)
    assert _compile(tmp_path, PLAIN) == first


def test_what_is_asked_for_twice_at_once_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(requests: Sequence[object], _: Toolchain) -> Generator[tuple[int, dict[str, int]]]:
        yield from ((number, {"registers": number + 1}) for number in range(len(requests)))

    monkeypatch.setattr(resources, "compile_requests", counted)
    one, again = _compile(tmp_path, PLAIN.replace("x + x", "x * 5.0"), Config(), Config())
    assert (one.registers, again.registers) == (1, 1)


def test_other_source_is_not_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compile(tmp_path, PLAIN)
    monkeypatch.setattr(resources, "compile_requests", _must_not_compile)
    with pytest.raises(AssertionError, match="compiled again"):
        _compile(tmp_path, PLAIN.replace("x + x", "x * 3.0"))


def _must_not_compile(*_: object) -> dict[str, object]:
    raise AssertionError("compiled again")


def test_crash_of_the_compiler_is_a_result_and_not_kept(tmp_path: Path) -> None:
    signature = load_signature("_demo_kernel", write_signature(tmp_path))
    crash = tmp_path / "python"
    crash.write_text("#!/bin/sh\necho 'all is lost' >&2\nkill -SEGV $$\n")
    crash.chmod(0o755)
    found = compile_kernel(PLAIN, "_demo_kernel", signature, Config(), 90, default_geometry(), Toolchain(crash, "0.0"))
    assert found.error == "the compiler ended with -11: all is lost"
    assert not found.dropped
    crash.write_text("#!/bin/sh\necho '[0, {\"registers\": 7}]' >/dev/fd/$3\n")
    again = compile_kernel(PLAIN, "_demo_kernel", signature, Config(), 90, default_geometry(), Toolchain(crash, "0.0"))
    assert again.registers == 7


def test_arch_without_known_limits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="known: 90, 120"):
        _compile(tmp_path, PLAIN, arch=80)


def test_installed_triton_needs_no_environment_of_its_own() -> None:
    assert toolchain_of() == toolchain_of(toolchain_of().version)


@pytest.mark.parametrize("version", ["newest", "3.6.0 --index-url x", "", "3"])
def test_odd_triton_version_is_refused_before_anything_is_installed(version: str) -> None:
    with pytest.raises(ToolchainError, match="no Triton version"):
        toolchain_of(version)


def test_triton_that_cannot_be_installed_leaves_no_half_made_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ToolchainError, match=r"cannot install Triton 0\.0\.1"):
        toolchain_of("0.0.1")
    assert not list(tmp_path.rglob(".ready"))
