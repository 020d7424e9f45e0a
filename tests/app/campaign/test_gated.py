from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.facts import campaign_facts
from app.campaign.gated import decode_rank, keep_findings
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup, setup_of
from app.gate import kept
from app.gate.kept import COMPILING, keep_report, kept_report
from app.gate.named import check_named
from app.gate.report import Finding, GateReport
from app.kernel.placed import PlacedKernel
from app.kernel.variants import load_variants
from app.records import read_json, write_json
from kernels.geometry import DEEPSEEK_V4_FLASH, Geometry
from loadtest.plan import Plan

PLAN = Plan(3, {"v1": "pinned", "v2": "pinned"}, (1,), 4)
KERNELS = {n: PlacedKernel(n, "triton", Path(n), f"sha of {n}", "base", "_kernel") for n in PLAN.variants}
FOUND = Finding("no-op", "same machine code as its control pinned")
REPORT = GateReport(
    "v1", "pinned", "_kernel", 120, "3.9.0", Geometry(64, 4), "sha of v1", (FOUND,), control_sha256="sha of pinned"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "3.9.0")
    made = RunFolder(tmp_path / "run")
    kernels = {name: {"sha256": k.sha256, "selector": k.selector} for name, k in KERNELS.items()}
    write_json(made.manifest_file, {"simulated": True, "stack": {}, "kernels": kernels})
    return made


def keep(folder: RunFolder) -> list[str]:
    said = list[str]()
    keep_findings(folder, PLAN, load_variants(), KERNELS, Setup(), said.append)
    return said


def test_what_the_gate_had_found_of_the_same_files_is_taken_into_the_campaign_and_its_facts(folder: RunFolder) -> None:
    keep_report(REPORT)
    keep(folder)
    assert read_json(folder.gate_file) == {"v1": REPORT.to_json()}
    facts = campaign_facts(folder, PLAN)
    assert (facts.variants["v1"].same_code, facts.variants["v2"].same_code) == (True, False)
    assert facts.notes == ("the gate was not run on v2; invoke check --variant NAME compiles them",)


@pytest.mark.parametrize(
    "changed",
    [
        lambda r: replace(r, kernel_sha256="sha of an earlier v1"),
        lambda r: replace(r, control_sha256="sha of an earlier pinned"),
        lambda r: replace(r, control="baseline"),
        lambda r: replace(r, arch=90),
        lambda r: replace(r, triton_version="3.6.0"),
        lambda r: replace(r, geometry=Geometry(64, 1)),
    ],
)
def test_what_was_found_of_another_file_control_card_or_triton_is_not(
    folder: RunFolder, changed: Callable[[GateReport], GateReport]
) -> None:
    keep_report(changed(REPORT))
    keep(folder)
    assert not folder.gate_file.exists()
    assert campaign_facts(folder, PLAN).notes[0].startswith("the gate was not run on these variants;")


def test_what_was_found_for_another_card_or_heads_alone_is_named(folder: RunFolder) -> None:
    keep_report(replace(REPORT, arch=90))
    keep_report(replace(REPORT, geometry=Geometry(64, 1)))
    was = "sm_120, 64 heads and Triton 3.9.0; sm_90, 16 heads and Triton 3.9.0"
    assert keep(folder) == [f"the gate ran on v1 for {was}, not for sm_120, 16 heads and Triton 3.9.0 as here"]


def test_what_invoke_check_keeps_is_found_by_a_campaign_of_no_options(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.gate.named.fetch_base", lambda *_, **__: None)
    monkeypatch.setattr(
        "app.gate.named.check", lambda _, __, ___, arch, geometry, ____: replace(REPORT, arch=arch, geometry=geometry)
    )
    check_named("v1")
    assert keep(folder) == []
    assert folder.gate_file.exists()


def test_all_that_compiles_is_part_of_what_reports_follow_from() -> None:
    listing = "import sys, app.gate.gate; print(*(m for m in sys.modules if m.startswith('kernels.')))"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout
    assert sorted(loaded.split()) == [f"kernels.{name}" for name in COMPILING]


def test_the_card_and_heads_are_those_of_the_servers_or_of_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_ARCH", "90")
    monkeypatch.setenv("DECODE_TP", "2")
    assert decode_rank(Setup("docker", "sglang")) == (90, 32)
    assert decode_rank(setup_of("local", "sglang", "", "", "heads=16,arch=120")) == (120, 16)
    assert decode_rank(setup_of("local", "sglang", "", "", "one_of=4,arch=120")) == (120, 16)


def test_a_model_of_ones_own_is_asked_for_its_heads(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {**DEEPSEEK_V4_FLASH, "num_attention_heads": 128})
    assert decode_rank(setup_of("local", "sglang", "", str(tmp_path), "arch=120,tp=4")) == (120, 32)


@pytest.mark.usefixtures("folder")
def test_a_changed_signature_of_a_launch_leaves_no_report_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_report(REPORT)

    def found() -> bool:
        names, digests = (REPORT.variant, REPORT.control), (REPORT.kernel_sha256, REPORT.control_sha256)
        return kept_report(names, digests, REPORT.arch, REPORT.geometry.local_heads, REPORT.triton_version) is not None

    assert found()
    (tmp_path / "a.yaml").write_text("another launch")
    monkeypatch.setattr("app.gate.kept.SIGNATURES", tmp_path)
    monkeypatch.setattr("app.gate.kept._code_sha256", kept._code_sha256.__wrapped__)
    assert not found()
