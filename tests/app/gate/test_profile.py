"""A trace is held against the gate's figures: same build, another head count, other code, another GPU."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.errors import NotReadyError, ProofError, UsageError
from app.gate import profile
from app.gate.profile import ProfileReport, match_launches, profile_variant, run_profile
from app.gate.report import GateReport
from app.kernel.variant import KernelConfig
from kernels.geometry import default_geometry
from kernels.resources import Resources
from kernels.signature import Signature, load_signature
from kernels.trace import Launch, LaunchGroup
from tests.kernels.made_trace import H200, STOCK, launch, write_trace

LARGE = Resources(KernelConfig({"BLOCK_T": 32}, 8, 2), 90, "3.6.0", shared_bytes=16384, registers=255, num_warps=8)
SMALL = Resources(KernelConfig({"BLOCK_T": 16}, 4, 2), 90, "3.6.0", shared_bytes=8192, registers=255, num_warps=4)
GATE = GateReport("upstream", "", STOCK, 90, "3.6.0", default_geometry(), "0" * 64, (), (SMALL, LARGE))


@pytest.fixture(autouse=True)
def _gate_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "check_named", lambda name, **_: replace(GATE, variant=name))


def _profile(folder: Path, *events: dict[str, Any], **options: Any) -> ProfileReport:
    return profile_variant("upstream", write_trace(folder / "t.json", *events), **options)


def test_launch_of_this_build_is_named_by_its_config(tmp_path: Path) -> None:
    report = _profile(tmp_path, launch(), launch(block=(128, 1, 1), shared=8192))
    assert [match.config for match in report.matches] == ["(32,8,2)", "(16,4,2)"]
    report.require()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"use": "one cache"}, "(32,8,2) two caches or one cache"),
        ({"use": "one cache", "registers": 250}, "(32,8,2) two caches"),
        ({"use": "two caches", "config": SMALL.config}, "(32,8,2) two caches or (16,4,2) two caches"),
    ],
)
def test_a_launch_that_several_compiled_kernels_make_alike_is_named_by_all_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    first = replace(LARGE, use="two caches")
    gate = replace(GATE, resources=(first, replace(first, **other)))
    monkeypatch.setattr(profile, "check_named", lambda *_, **__: gate)
    assert [match.config for match in _profile(tmp_path, launch()).matches] == [named]


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (launch(grid=(8, 32, 1)), "launched for 32 heads, not for 16"),
        (launch(registers=150), "256/150/16384"),
        (launch(shared=83 * 1024), "256/255/84992"),
        (launch(block=(128, 1, 1)), "128/255/16384"),
    ],
    ids=["heads", "registers", "shared", "threads"],
)
def test_launch_of_another_build_is_refused_with_what_differs(
    tmp_path: Path, event: dict[str, Any], named: str
) -> None:
    report = _profile(tmp_path, launch(), event)
    with pytest.raises(ProofError, match=f"another build than upstream on sm_90 with Triton 3.6.0: .*{named}"):
        report.require()


def test_padded_heads_are_accepted_when_they_are_named(tmp_path: Path) -> None:
    padded = launch(grid=(8, 64, 1))
    assert "--heads 64" in _profile(tmp_path, padded).faults[0]
    _profile(tmp_path, padded, heads=64).require()


def test_trace_of_another_gpu_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", launch(), device={**H200, "name": "RTX PRO 6000", "computeMajor": 12})
    with pytest.raises(ProofError, match="recorded on RTX PRO 6000, sm_120"):
        profile_variant("upstream", path).require()


def test_trace_without_the_kernel_is_a_proof_error(tmp_path: Path) -> None:
    with pytest.raises(ProofError, match="no launch of"):
        _profile(tmp_path, launch(name="gemm"))


@pytest.mark.parametrize(("grid", "fits"), [((4, 3, 8), True), ((1, 3, 8), False)])
def test_head_blocks_must_be_those_of_the_heads(grid: tuple[int, int, int], fits: bool) -> None:
    signature = Signature(STOCK, (), {"BLOCK_H": 16}, grid=("head_blocks", "splits", "batch"))
    group = LaunchGroup(Launch(grid, (256, 1, 1), 255, 16384), 1, 1.0, 1.0, 1.0)
    (match,) = match_launches([group], [LARGE], signature, heads=64)
    assert bool(match.config) == fits


def test_axis_that_counts_share_must_be_a_multiple_of_the_head_blocks() -> None:
    signature = replace(load_signature(STOCK), constants={"BLOCK_H": 16}, grid=("batch * head_blocks",))
    groups = [LaunchGroup(Launch((n, 1, 1), (256, 1, 1), 255, 16384), 1, 1.0, 1.0, 1.0) for n in (264, 265)]
    assert [bool(m.config) for m in match_launches(groups, [LARGE], signature, heads=64)] == [True, False]


def test_report_is_complete_as_json_and_short_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path / "t.json", launch())
    assert run_profile("upstream", trace=str(path), as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["same_build"], data["launches"][0]["launch"]["grid"]) == (True, [8, 16, 1])
    out = io.StringIO()
    Console(file=out, width=200).print(*profile_variant("upstream", path).tables(), sep="\n")
    assert "8x16x1" in out.getvalue()
    assert "never launched" in out.getvalue()


def test_refused_trace_is_still_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProofError):
        run_profile("upstream", trace=str(write_trace(tmp_path / "t.json", launch(registers=1))))
    assert "another build" in capsys.readouterr().out


def test_variant_without_a_kernel_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "check_named", lambda name, **_: replace(GATE, kernel=""))
    with pytest.raises(UsageError, match="no kernel of the file"):
        profile_variant("flashinfer")


def test_machine_without_a_gpu_is_not_ready_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_patched_text", lambda *_: "")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(NotReadyError, match="--trace"):
        profile_variant("upstream")
