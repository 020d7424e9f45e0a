"""What a start shows after its load, with a stand-in for SGLang: nothing here ran on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.engine import Endpoints
from app.engine.inspection import Inspection
from app.engine.sglang.engine import SglangEngine
from app.engine.sglang.evidence import predict
from app.engine.sglang.installation import Installation
from app.engine.sglang.served import Served
from app.errors import ProofError
from app.gate.report import GateReport
from app.kernel.placed import PlacedKernel
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from app.stack.local import LocalStack
from loadtest.plan import Lengths
from tests.app.engine.sglang.standin import make_standin, tell
from tests.kernels.made_trace import launch

SERVED = Served(
    topology="single", heads=16, arch=120, start_timeout_s=30, max_running=4, graph_batches=(4,), prebuilt=False
)
KERNEL = "_sparse_mla_decode_kernel"
VARIANTS = ("pinned", "v1", "flashinfer")


@dataclass
class Bench:
    """A stack over the stand-in, and what is asked of its starts."""

    stack: LocalStack
    site: Path
    installed: Installation
    kernels: dict[str, PlacedKernel]
    folder: Path

    def start(self, variant: str, **shown: Any) -> Endpoints:
        tell(self.site, shown={variant: shown})
        return self.stack.switch(self.kernels[variant], variant)

    def inspect(self, variant: str, **shown: Any) -> dict[str, Any]:
        endpoints = self.start(variant, **shown)
        asked = Inspection(variant, {"v1": "pinned"}, 3, Lengths(40, 8), self.folder / variant)
        return self.stack.inspect(endpoints, asked)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    installed = make_standin(tmp_path / "site", sm120=True)
    kernels = place_kernels(load_variants(), VARIANTS, fetch_base(), tmp_path / "kernels")
    with LocalStack(SglangEngine(SERVED, installed, tmp_path / "engine"), tmp_path / "logs") as stack:
        yield Bench(stack, tmp_path / "site", installed, kernels, tmp_path / "starts")


def test_a_variant_is_held_against_its_control_on_the_same_inputs(bench: Bench) -> None:
    assert bench.inspect("pinned", launches=None)["outputs"]["against"] == []
    found = bench.inspect("v1", launches=None, noise=0.004, nats=0.5)
    (outputs,), (answers,) = found["outputs"]["against"], found["logprobs"]["against"]
    assert outputs["relative"] == pytest.approx(0.004, rel=0.05)
    assert (outputs["control"], outputs["control_relative"], outputs["limit"]) == ("pinned", 0.0, 0.01)
    assert (answers["max_nats"], answers["control_max_nats"], answers["alarm"]) == (0.5, 0.0, True)


def test_outputs_beyond_the_limit_are_no_proof_whichever_start_came_first(bench: Bench) -> None:
    bench.inspect("v1", launches=None, noise=0.02)
    with pytest.raises(ProofError, match=r"v1's attention differs from pinned's .* by 0\.019 of .*from itself by 0 "):
        bench.inspect("pinned", launches=None)


def test_what_could_not_be_had_says_why(bench: Bench) -> None:
    found = bench.inspect("pinned", launches=None, error="OutOfMemoryError: 2 GiB")
    assert "OutOfMemoryError: 2 GiB" in found["outputs"]["why_not"]
    assert "answered HTTP 500; the server's log says why" in found["trace"]["why_not"]


def test_of_a_variant_that_changes_no_kernel_is_told_why_its_trace_says_nothing(bench: Bench) -> None:
    found = bench.inspect("flashinfer", launches=[launch("attention", 20.0)])["trace"]
    assert found["why_not"].startswith(
        "flashinfer changes no kernel of SGLang's file, so the gate predicts no launches"
    )


def test_nothing_is_looked_at_where_that_is_left_out(bench: Bench) -> None:
    bench.stack.engine = SglangEngine(replace(SERVED, inspected=False), bench.installed, bench.folder)
    assert bench.inspect("pinned") == {}
    assert not (bench.folder / "inspection").exists()


@pytest.mark.kernel
def test_a_trace_of_the_running_service_is_kept_with_what_it_shows(bench: Bench) -> None:
    config = predicted(bench, "pinned").resources[0]
    shape = (32 * config.num_warps, 1, 1), config.registers, config.shared_bytes
    found = bench.inspect("pinned", launches=[launch(KERNEL, 20.0, (3, 2, 1), *shape)] * 20)["trace"]
    (seen,) = found["launches"]
    assert (seen["config"], seen["count"], seen["per_step"], seen["us_per_step"]) == (
        "(16,4,2) two caches",
        20,
        2.0,
        40.0,
    )
    assert (found["requests"], found["steps"], found["registers_as_predicted"]) == (3, 10, True)
    assert (bench.folder / "pinned" / found["file"]).is_file()


def predicted(bench: Bench, variant: str) -> GateReport:
    report = predict(bench.kernels[variant], 120, 16)
    assert report is not None
    return report
