"""Kernels that the host launches beside a variant's own: compiled, shown, and part of what makes code the same."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from app.gate.gate import check
from app.gate.report import GateReport
from app.kernel.patch import patch_kernel
from app.kernel.upstream import Base
from app.kernel.variant import Change, KernelConfig, Target, Variant
from kernels.geometry import default_geometry
from kernels.resources import compile_all
from kernels.signature import load_signature
from tests.kernels.samples import (
    COMPANIONS,
    DOT,
    MERGE,
    MERGE_SIGNATURE,
    SIGNATURE,
    Config,
    fake_toolchain,
    write_signature,
)

WITH_MERGE, WITHOUT = KernelConfig({"BLOCK": 64}, 4, 2), KernelConfig({"BLOCK": 32}, 4, 2)
OWN_KERNEL = Path(__file__).parents[3] / "kernels" / "sparse_mla_decode.py"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def _variant(name: str, *configs: KernelConfig, **constants: int) -> Variant:
    change = Change(configs=configs or (WITH_MERGE,), key=("n",), constants=constants)
    return Variant(name, None, "triton", Target("pkg.mod", "_demo_kernel"), change, "h", {}, "open", Path("v.yaml"))


def _check(folder: Path, variant: Variant, merge: str = MERGE, num_warps: int = 2) -> GateReport:
    """The gate on a variant of a file with a merge, against the file as it is."""
    text = DOT + merge
    base = Base(text, hashlib.sha256(text.encode()).hexdigest(), "0", "pkg.mod", "pkg/mod.py", "_demo_kernel")
    write_signature(folder, SIGNATURE + COMPANIONS)
    (folder / "_merge_demo.yaml").write_text(MERGE_SIGNATURE.replace("num_warps: 2", f"num_warps: {num_warps}"))
    control = _variant("control", *variant.change.configs or ())
    return check(variant, control, base, toolchain=fake_toolchain(folder), signatures=folder)


def _kinds(report: GateReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_change_of_the_merge_alone_is_no_no_op(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v", WEIGHT=2))
    assert [r.identity for r in report.resources] == [r.identity for r in report.control_resources]
    assert [r.identity for r in report.companions] != [r.identity for r in report.control_companions]
    assert (report.findings, report.buildable()) == ((), True)


def test_other_text_of_the_merge_with_equal_code_of_both_kernels_is_a_no_op(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v", SPARE=2))
    assert _kinds(report) == ["no-op"]
    assert "that of _merge_demo included" in report.findings[0].what


def test_other_host_code_around_equal_kernels_is_no_no_op(tmp_path: Path) -> None:
    assert _kinds(_check(tmp_path, _variant("v", TRIES=2))) == []


def test_merge_is_compiled_only_where_the_host_launches_it(tmp_path: Path) -> None:
    assert [str(r.config) for r in _check(tmp_path, _variant("v")).companions] == [
        "(BLOCK=64, num_warps=2, num_stages=3)"
    ]
    never = _check(tmp_path, _variant("v", WITHOUT, WEIGHT=2))
    assert (never.companions, _kinds(never)) == ((), [])


@pytest.mark.parametrize(("sum_", "kinds"), [("SPARE + ", ["no-op"]), ("", [])])
def test_copy_that_renames_a_merge_that_is_never_launched_is_a_no_op_until_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sum_: str, kinds: list[str]
) -> None:
    text = (DOT + MERGE).replace("_merge_demo", "_mine").replace("SPARE + ", sum_)
    renamed = Base(text, hashlib.sha256(text.encode()).hexdigest(), "0", "pkg.mod", "pkg/mod.py", "_demo_kernel")
    copied = _variant("v", WITHOUT)
    monkeypatch.setattr("app.gate.gate.patch_kernel", lambda b, v: patch_kernel(renamed if v is copied else b, v))
    assert _kinds(_check(tmp_path, copied)) == kinds


def test_merge_of_a_config_that_is_dropped_is_not_compiled(tmp_path: Path) -> None:
    dropped = KernelConfig({"BLOCK": 64}, 4, 9)
    assert _check(tmp_path, _variant("v", WITHOUT, dropped)).companions == ()


def test_spill_of_the_merge_is_a_finding_that_names_it(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v", WEIGHT=2), num_warps=1)
    assert _kinds(report) == ["spill"]
    assert report.findings[0].what.startswith(
        "_merge_demo (BLOCK=64, num_warps=1, num_stages=3), which the host launches"
    )
    assert "spills 8 B a thread" in report.findings[0].what


def test_merge_that_does_not_compile_refuses_the_variant(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v"), MERGE.replace("tl.load(c_ptr)", "absent(c_ptr)"))
    assert "_merge_demo" in str(report.refusal())
    assert "absent is not defined" in str(report.refusal())


def test_file_without_the_merge_that_the_signature_names_is_refused(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v"), MERGE.replace("_merge_demo", "_other"))
    assert "no top-level function '_merge_demo'" in str(report.refusal())


def test_merge_is_in_table_and_json(tmp_path: Path) -> None:
    report = _check(tmp_path, _variant("v", WEIGHT=2))
    out = io.StringIO()
    Console(width=80, file=out).print(*report.tables(), sep="\n")
    assert "_merge_demo (BLOCK=64, num_warps=2, num_stages=3), launched beside v" in out.getvalue()
    codes = [report.to_json()[of][0]["code_sha256"] for of in ("companions", "control_companions")]
    assert codes == [report.companions[0].code_sha256, report.control_companions[0].code_sha256]
    assert all(code[:8] in out.getvalue() for code in codes)
    assert json.loads(json.dumps(report.to_json()))["companions"][0]["kernel"] == "_merge_demo"


def test_merge_of_our_kernel_fits_and_spills_nothing() -> None:
    text, signature = OWN_KERNEL.read_text(), load_signature("_merge_kernel")
    largest = next(use for use in signature.uses if use.use == "two caches by 16")
    config = Config({"EARLY": True}, signature.num_warps, 3)
    (found,) = compile_all(text, "_merge_kernel", largest, [config], 120, default_geometry())
    assert (found.error, found.spill_bytes, found.fits) == (None, 0, True)
