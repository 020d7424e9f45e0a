"""Each finding of the gate, and what may be built of it; the compiler is a fake that answers by rule."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from app.errors import GateError, NotReadyError, UnwrittenError, UsageError
from app.gate.gate import check
from app.gate.kept import keep_report
from app.gate.named import check_named
from app.gate.report import GateReport
from app.kernel.patch import patch_kernel
from app.kernel.upstream import Base
from app.kernel.variant import Change, KernelConfig, Selector, Target, Variant
from kernels.resources import Compilation, Resources, compile_prepared
from kernels.toolchain import Toolchain
from tests.kernels.samples import DOT, PLAIN, SIGNATURE, fake_toolchain, write_signature

SMALL, DEEP = KernelConfig({"BLOCK": 64}, 4, 2), KernelConfig({"BLOCK": 64}, 4, 3)
TABLE = "table: {constant: UNUSED, bounds: [batch], settings: [BLOCK, num_warps, num_stages]}\n"
TOO_LARGE = KernelConfig({"BLOCK": 128}, 4, 5)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def _base(text: str) -> Base:
    return Base(text, hashlib.sha256(text.encode()).hexdigest(), "0", "pkg.mod", "pkg/mod.py", "_demo_kernel")


def _variant(
    *configs: KernelConfig, name: str = "v", key: tuple[str, ...] = ("n",), selector: Selector = "triton"
) -> Variant:
    target = Target("pkg.mod", "_demo_kernel") if selector == "triton" else None
    return Variant(name, None, selector, target, Change(configs=configs, key=key), "h", {}, "open", Path("v.yaml"))


def _check(folder: Path, text: str, variant: Variant, control: Variant | None = None, arch: int = 120) -> GateReport:
    return check(
        variant, control, _base(text), arch, toolchain=fake_toolchain(folder), signatures=write_signature(folder)
    )


def _kinds(report: GateReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_one_config_that_fits_passes_without_findings(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(DEEP), _variant(SMALL, name="control"))
    assert (report.findings, report.buildable()) == ((), True)
    report.require()


def test_same_code_is_a_no_op_that_must_be_allowed(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN, _variant(DEEP), _variant(SMALL, name="control"))
    assert _kinds(report) == ["no-op"]
    assert (report.same_code, report.buildable(), report.buildable(allow_noop=True)) == (True, False, True)
    with pytest.raises(GateError, match="--allow-noop"):
        report.require()
    report.require(allow_noop=True)


def test_variant_and_control_are_compiled_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = list[list[object]]()

    def seen(prepared: Sequence[Compilation], chain: Toolchain) -> list[Resources]:
        together.append([one.config for one in prepared])
        return compile_prepared(prepared, chain)

    monkeypatch.setattr("app.gate.gate.compile_prepared", seen)
    _check(tmp_path, DOT, _variant(DEEP), _variant(SMALL, name="control"))
    assert together[0] == [DEEP, SMALL]


def test_more_than_one_survivor_is_a_draw_and_buildable(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(SMALL, DEEP))
    assert _kinds(report) == ["draw"]
    assert (report.autotune_drawn, report.buildable()) == (True, True)


def test_config_over_the_limit_is_pruned_and_leaves_no_draw(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(SMALL, TOO_LARGE))
    assert _kinds(report) == ["pruned"]
    assert "silently dropped at run time" in report.findings[0].what
    assert "101376 B" in report.findings[0].what
    assert not report.autotune_drawn


def test_pruning_to_the_controls_config_is_a_no_op(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(SMALL, TOO_LARGE), _variant(SMALL, name="control"))
    assert _kinds(report) == ["pruned", "no-op"]


def test_list_without_survivors_is_refused_with_need_and_limit(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(TOO_LARGE))
    assert _kinds(report) == ["refuse", "pruned"]
    need = "even (BLOCK=128, num_warps=4, num_stages=5) needs 128000 B of shared memory, over the 101376 B of sm_120"
    remedy = "add a config of fewer num_stages or a smaller BLOCK"
    assert report.findings[0].what == f"no config survives on sm_120: {need}; {remedy}"
    assert not report.buildable(allow_noop=True)


def test_limit_is_the_targets_own(tmp_path: Path) -> None:
    assert _kinds(_check(tmp_path, DOT, _variant(TOO_LARGE), arch=90)) == []


def test_kernel_that_does_not_compile_is_refused_with_the_compilers_words(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN.replace("_twice(x), mask", "absent(x), mask"), _variant(SMALL))
    assert _kinds(report) == ["refuse"]
    assert "absent is not defined; mend the kernel's file, or leave this config out" in report.findings[0].what


def test_failure_that_the_autotuner_swallows_is_pruned(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN.replace("    at =", "    tl.static_assert(False)\n    at ="), _variant(SMALL))
    assert _kinds(report) == ["refuse", "pruned"]
    assert "none compiles (static assertion); mend the kernel's file or its configs" in report.findings[0].what


def test_list_that_wants_more_warps_than_there_are_is_told_so(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(KernelConfig({"BLOCK": 64}, 64, 1)))
    assert "needs 64 warps of 64 registers, more than an SM of sm_120 has" in report.findings[0].what
    assert report.findings[0].what.endswith("; add a config of fewer num_warps")


def test_variant_that_does_not_patch_is_refused(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN, _variant(SMALL, key=("batch",)))
    assert _kinds(report) == ["refuse"]
    assert "batch" in report.findings[0].what


def test_control_that_cannot_be_built_refuses_the_variant(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(SMALL), _variant(TOO_LARGE, name="control"))
    assert "its control control cannot be built" in report.findings[-1].what
    assert not report.buildable()


@pytest.mark.parametrize(("sum_", "kinds"), [("x + x", ["no-op"]), ("2 * x", [])])
def test_copy_whose_kernel_has_another_name_is_a_no_op_until_its_code_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sum_: str, kinds: list[str]
) -> None:
    renamed = replace(_variant(SMALL), target=Target("pkg.mod", "_mine"))
    copied = _base(PLAIN.replace("_demo_kernel", "_mine").replace("x + x", sum_))
    monkeypatch.setattr("app.gate.gate.patch_kernel", lambda b, v: patch_kernel(copied if v is renamed else b, v))
    (tmp_path / "_mine.yaml").write_text(SIGNATURE.replace("_demo_kernel", "_mine"))
    assert _kinds(_check(tmp_path, PLAIN, renamed, _variant(SMALL, name="control"))) == kinds


def test_key_alone_makes_a_difference_only_where_codes_differ(tmp_path: Path) -> None:
    other = _variant(SMALL, DEEP, name="control", key=("n", "BLOCK"))
    assert not _check(tmp_path, DOT, _variant(SMALL, DEEP), other).same_code
    assert _check(tmp_path, PLAIN, _variant(SMALL, DEEP), other).same_code


def test_other_host_code_around_the_same_kernel_is_no_no_op(tmp_path: Path) -> None:
    text = PLAIN.replace("UNUSED = module_that_is_not_here.anything", "UNUSED = 1")
    changed = replace(_variant(SMALL), change=Change(configs=(SMALL,), constants={"UNUSED": 2}))
    assert not _check(tmp_path, text, changed, _variant(SMALL, name="control")).same_code


@pytest.mark.parametrize(("page", "kinds"), [(16, ["no-op"]), (2, [])])
def test_code_that_differs_only_in_a_further_use_is_no_no_op(tmp_path: Path, page: int, kinds: list[str]) -> None:
    text = PLAIN.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr, PAGE: tl.constexpr):")
    further = f"constants: {{PAGE: 16}}\nfurther_uses: [{{name: small, constants: {{PAGE: {page}}}}}]\n"
    write_signature(tmp_path, SIGNATURE + further)
    pair = _variant(SMALL), _variant(DEEP, name="control")
    report = check(*pair, _base(text), toolchain=fake_toolchain(tmp_path), signatures=tmp_path)
    assert _kinds(report) == kinds
    assert len(report.resources) == 1


def _check_table(folder: Path, rows: str, text: str = DOT) -> GateReport:
    write_signature(folder, SIGNATURE + TABLE)
    text = text.replace("UNUSED = module_that_is_not_here.anything", f"UNUSED = {{'120': {rows}}}")
    return check(_variant(SMALL, DEEP), None, _base(text), toolchain=fake_toolchain(folder), signatures=folder)


def test_table_that_covers_every_problem_leaves_nothing_to_draw(tmp_path: Path) -> None:
    report = _check_table(tmp_path, "[[8, 64, 4, 2], [0, 64, 4, 3]]")
    assert report.findings == ()
    assert [str(r.config) for r in report.resources] == [
        "(BLOCK=64, num_warps=4, num_stages=2)", "(BLOCK=64, num_warps=4, num_stages=3)",
    ]  # fmt: skip


def test_table_with_gaps_leaves_the_list_in_use(tmp_path: Path) -> None:
    report = _check_table(tmp_path, "[[8, 64, 8, 2]]")
    assert _kinds(report) == ["draw"]
    assert len(report.resources) == 3


def test_choice_that_does_not_fit_is_refused_because_nothing_replaces_it(tmp_path: Path) -> None:
    report = _check_table(tmp_path, "[[0, 128, 4, 5]]")
    assert _kinds(report) == ["refuse"]
    assert "the choice of row 1 (any problem) of its table, cannot run" in report.findings[0].what


def test_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "num_warps" in str(_check_table(tmp_path, "[[0, 128]]").refusal())


def test_own_backend_of_sglang_has_nothing_to_compile(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN, _variant(selector="flashinfer"))
    assert (report.findings, report.resources) == ((), ())
    assert "nothing was compiled" in report.statement


def test_spill_is_listed_with_its_bytes(tmp_path: Path) -> None:
    report = _check(tmp_path, DOT, _variant(KernelConfig({"BLOCK": 64}, 1, 2)))
    assert _kinds(report) == ["spill"]
    assert f"spills {report.resources[0].spill_bytes} B" in report.findings[0].what
    assert "under Triton 0.fake" in report.findings[0].what


def test_spill_of_a_tables_choice_names_the_rows_that_choose_it(tmp_path: Path) -> None:
    report = _check_table(tmp_path, "[[8, 64, 1, 2], [16, 64, 4, 2], [0, 64, 1, 2]]")
    assert _kinds(report) == ["spill"]
    assert ", the choice of rows 1 (batch to 8) and 3 (any problem) of its table, spills" in report.findings[0].what


def test_report_says_that_nothing_was_launched_and_with_which_triton(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN, _variant(SMALL))
    data = json.loads(json.dumps(report.to_json()))
    assert f"sm_120 with Triton {data['triton_version']}" in data["statement"]
    assert "never launched" in data["statement"]
    assert data["configs"][0]["num_warps"] == 4
    assert data["geometry"]["local_heads"] == 16


def test_terminal_report_fits_eighty_columns_and_shows_code_and_finding(tmp_path: Path) -> None:
    report = _check(tmp_path, PLAIN, _variant(DEEP), _variant(SMALL, name="control"))
    out = io.StringIO()
    Console(width=80, file=out).print(*report.tables(), sep="\n")
    text = out.getvalue()
    assert text.count(report.resources[0].code_sha256[:8]) == 2
    assert "no-op: same machine code as its control control" in text
    assert "not buildable" in text


def test_arch_without_limits_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="known: 120, 90"):
        _check(tmp_path, PLAIN, _variant(SMALL), arch=100)


def test_signature_that_does_not_fit_is_a_usage_error(tmp_path: Path) -> None:
    write_signature(tmp_path, SIGNATURE.replace("  n:", "  m:"))
    with pytest.raises(UsageError, match="m, n"):
        check(_variant(SMALL), None, _base(PLAIN), toolchain=fake_toolchain(tmp_path), signatures=tmp_path)


def test_unknown_variant_and_impossible_parallelism_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="unknown variant"):
        check_named("nope")
    with pytest.raises(UsageError, match="TP 7"):
        check_named("v2", tp=7)


def test_triton_that_cannot_be_had_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(NotReadyError, match=r"Triton 0\.0\.1"):
        check_named("v2", triton="0.0.1")


def test_cache_that_cannot_be_written_is_one_line_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(NotReadyError, match=r"the cache .*cache/decode-ab cannot be used: .*; .* set XDG_CACHE_HOME$"):
        _check(tmp_path, PLAIN, _variant(SMALL))
    report = check(_variant(selector="flashinfer"), None, _base(PLAIN), toolchain=fake_toolchain(tmp_path))
    with pytest.raises(UnwrittenError, match=r"cannot be used: .*; .* set XDG_CACHE_HOME$"):
        keep_report(report)


def test_other_toolchain_is_the_one_reported(tmp_path: Path) -> None:
    broken = Toolchain(Path("/bin/false"), "9.9.9")
    report = check(_variant(SMALL), None, _base(PLAIN), toolchain=broken, signatures=write_signature(tmp_path))
    assert report.triton_version == "9.9.9"
    assert _kinds(report) == ["refuse"]
