"""SGLang on the local runtime, with a stand-in for SGLang itself: nothing here ran on a GPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.facts import path_told
from app.engine import Ports
from app.engine.probe import send_canary
from app.engine.proof import check_proof
from app.engine.sglang.engine import SglangEngine
from app.engine.sglang.installation import Installation
from app.engine.sglang.served import Served
from app.errors import ProofError, UnknownBaseError, UsageError
from app.kernel.placed import PlacedKernel
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base, pinned
from app.kernel.variants import load_variants
from app.stack.local import LocalStack
from kernels.geometry import DEEPSEEK_V4_FLASH
from tests.app.engine.sglang.standin import entry, make_standin, tell

# The stand-in has no Triton that could compile ahead.
SERVED = Served(topology="single", heads=16, arch=120, start_timeout_s=30, prebuilt=False)
KERNEL = "_sparse_mla_decode_kernel"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def installed(site: Path) -> Installation:
    return make_standin(site, sm120=True)


@pytest.fixture
def kernels(tmp_path: Path) -> dict[str, PlacedKernel]:
    return place_kernels(load_variants(), ("pinned", "v1", "flashmla"), fetch_base(), tmp_path / "kernels")


@pytest.fixture
def engine(tmp_path: Path, installed: Installation) -> SglangEngine:
    return SglangEngine(SERVED, installed, tmp_path / "engine")


@pytest.fixture
def stack(tmp_path: Path, engine: SglangEngine) -> Iterator[LocalStack]:
    with LocalStack(engine, tmp_path / "logs") as made:
        yield made


def shared_bytes(engine: SglangEngine, kernel: PlacedKernel) -> int:
    from app.engine.sglang.evidence import predict

    report = predict(kernel, engine.arch, 16)
    assert report is not None
    return report.resources[0].shared_bytes


@pytest.mark.kernel
def test_one_server_without_a_router_serves_and_proves_its_kernel(
    site: Path, engine: SglangEngine, stack: LocalStack, kernels: dict[str, PlacedKernel]
) -> None:
    tell(site, kernel=KERNEL, cache={"pinned": [entry(4, 2, shared_bytes(engine, kernels["pinned"]))]})
    endpoints = stack.up(kernels["pinned"], "block-000/start-00")
    assert endpoints.router_url == endpoints.prefill_url == endpoints.decode_url
    assert send_canary(endpoints).model == "dummy-dsv4-h16"
    proof = check_proof(stack.proof(endpoints), kernels["pinned"])
    assert (proof.config, proof.candidates) == ("(16,4,2)", ("(16,4,2)",))
    assert (proof.evidence["compiled_after_start"], proof.evidence["prebuilt"]) == (1, None)
    assert 0 < proof.evidence["ready_s"] < SERVED.start_timeout_s
    assert proof.evidence["calls"][0]["heads"] == 16


@pytest.mark.kernel
def test_a_compile_that_the_gate_does_not_predict_is_no_proof(
    site: Path, stack: LocalStack, kernels: dict[str, PlacedKernel]
) -> None:
    tell(site, kernel=KERNEL, cache={"pinned": [entry(8, 2, 99)]})
    endpoints = stack.up(kernels["pinned"], "a")
    with pytest.raises(ProofError, match="8/2/99, the gate predicts 4/2/"):
        stack.proof(endpoints)


@pytest.mark.kernel
def test_a_kernel_that_was_never_compiled_is_no_proof(stack: LocalStack, kernels: dict[str, PlacedKernel]) -> None:
    endpoints = stack.up(kernels["pinned"], "a")
    with pytest.raises(ProofError, match="never launched"):
        stack.proof(endpoints)


def test_attention_that_never_came_to_the_kernel_is_no_proof(
    site: Path, stack: LocalStack, kernels: dict[str, PlacedKernel]
) -> None:
    tell(site, sm120=False)
    endpoints = stack.up(kernels["pinned"], "a")
    with pytest.raises(ProofError, match="was never called"):
        stack.proof(endpoints)


def test_a_stack_that_goes_down_leaves_no_private_package(
    tmp_path: Path, stack: LocalStack, kernels: dict[str, PlacedKernel]
) -> None:
    stack.up(kernels["pinned"], "a")
    assert (tmp_path / "engine" / "packages" / "pinned" / "sglang").is_dir()
    stack.down()
    assert not (tmp_path / "engine" / "packages").exists()


def test_the_installed_package_is_left_as_it_was(
    site: Path, engine: SglangEngine, kernels: dict[str, PlacedKernel]
) -> None:
    def digest() -> str:
        files = sorted(p for p in site.rglob("*") if p.is_file())
        return hashlib.sha256(b"".join(str(p).encode() + p.read_bytes() for p in files)).hexdigest()

    before = digest()
    engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")
    assert engine.running is not None
    assert engine.running.package.kernel_file.read_bytes() == kernels["pinned"].path.read_bytes()
    assert digest() == before


def test_a_changed_installed_kernel_is_refused(
    installed: Installation, engine: SglangEngine, kernels: dict[str, PlacedKernel]
) -> None:
    file = installed.package.parent / pinned().file
    file.write_text(file.read_text() + "# tuned by hand\n")
    with pytest.raises(UnknownBaseError, match="start from a pristine file"):
        engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")


def test_a_private_package_changed_while_it_served_is_refused(
    engine: SglangEngine, kernels: dict[str, PlacedKernel]
) -> None:
    engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")
    assert engine.running is not None
    engine.running.package.kernel_file.write_text("")
    with pytest.raises(ProofError, match="was put there"):
        engine.discard()


@pytest.mark.parametrize(("arch", "path"), [(120, "own"), (90, "decode")])
def test_the_path_is_forced_on_a_gpu_that_is_no_sm_120(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel], arch: int, path: str
) -> None:
    engine = SglangEngine(replace(SERVED, arch=arch, heads=64), installed, tmp_path / "engine")
    command = engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")
    assert json.loads(command.env["DECODE_AB_ORDERS"])["path"] == path
    assert ("path forced on sm_90: timings are this GPU's" in engine.manifest()["path"]) == (arch == 90)


def test_a_rank_has_its_share_of_the_heads_that_a_model_of_ones_own_has(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**DEEPSEEK_V4_FLASH, "num_attention_heads": 128}))
    engine = SglangEngine(replace(SERVED, model=str(tmp_path), heads=64, tp=4), installed, tmp_path / "engine")
    engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")
    assert engine.running is not None
    assert engine.running.rank_heads == 32


def test_one_rank_alone_has_its_share_of_the_heads_and_is_said_to_exchange_nothing(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel]
) -> None:
    engine = SglangEngine(replace(SERVED, arch=90, heads=64, one_of=4), installed, tmp_path / "engine")
    command = engine.decode(Ports(1, 2, 3, 4, 5), kernels["pinned"], "a")
    assert engine.running is not None
    assert engine.running.rank_heads == 16
    assert (engine.forced, json.loads(command.env["DECODE_AB_ORDERS"])["one_of"]) == ("decode", 4)
    told = engine.manifest()["path"]
    assert told.endswith("; one of 4 ranks alone, nothing is exchanged")
    own = SglangEngine(replace(SERVED, arch=120, heads=64, one_of=4), installed, tmp_path / "own").manifest()["path"]
    assert own == "sm_120's own; one of 4 ranks alone, nothing is exchanged"
    assert [path_told({"stack": {"path": path}}) for path in (told, own, "sm_120's own")] == [(told,), (own,), ()]
    # FlashMLA takes the 64 that SGLang pads them to.
    engine.decode(Ports(1, 2, 3, 4, 5), kernels["flashmla"], "b")


def test_the_cards_own_default_is_neither_forced_nor_selected(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel]
) -> None:
    engine = SglangEngine(replace(SERVED, arch=90, heads=64), installed, tmp_path / "engine")
    command = engine.decode(Ports(1, 2, 3, 4, 5), kernels["flashmla"], "a")
    assert json.loads(command.env["DECODE_AB_ORDERS"])["path"] == "own"
    assert "SGLANG_SM120_FLASHMLA_BACKEND" not in command.env


def test_the_cards_own_default_is_proved_by_what_was_not_called(
    tmp_path: Path, site: Path, installed: Installation, kernels: dict[str, PlacedKernel]
) -> None:
    tell(site, sm120=False)
    engine = SglangEngine(replace(SERVED, arch=90, heads=64), installed, tmp_path / "engine")
    with LocalStack(engine, tmp_path / "logs") as stack:
        proof = check_proof(stack.proof(stack.up(kernels["flashmla"], "a")), kernels["flashmla"])
    assert (proof.config, proof.evidence["calls"], proof.evidence["cache"]) == ("flashmla", [], [])


@pytest.mark.parametrize("topology", ["single", "pd"])
def test_heads_that_flashmla_has_no_form_for_take_the_forced_path_in_prefill_too(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel], topology: str
) -> None:
    engine = SglangEngine(replace(SERVED, arch=90, topology=topology), installed, tmp_path / "engine")
    ports = Ports(1, 2, 3, 4, 5)
    commands = [engine.decode(ports, kernels["pinned"], "a"), engine.prefill(ports, kernels["pinned"])]
    assert {json.loads(c.env["DECODE_AB_ORDERS"])["path"] for c in commands} == {"all"}
    assert "all calls" in engine.manifest()["path"]
    with pytest.raises(UsageError, match="takes 64 or 128 heads"):
        engine.decode(ports, kernels["flashmla"], "a")


def test_sm_90s_default_is_refused_on_sm_120(engine: SglangEngine, kernels: dict[str, PlacedKernel]) -> None:
    with pytest.raises(UsageError, match="does not exist on sm_120"):
        engine.decode(Ports(1, 2, 3, 4, 5), kernels["flashmla"], "a")


def test_a_release_whose_path_was_never_forced_is_refused(tmp_path: Path, installed: Installation) -> None:
    with pytest.raises(UsageError, match=r"known for 0\.5\.17 only"):
        SglangEngine(replace(SERVED, arch=90, release="0.5.23"), installed, tmp_path)


def test_two_folders_of_a_campaign_have_one_manifest(tmp_path: Path, installed: Installation) -> None:
    here, there = (SglangEngine(SERVED, installed, tmp_path / name).manifest() for name in ("here", "there"))
    assert here == there
    assert here["environment.TRITON_CACHE_DIR"] == "{run}/caches/DIGEST/triton"


@pytest.mark.slow
def test_prefill_and_decode_serve_behind_the_real_router(
    tmp_path: Path, installed: Installation, kernels: dict[str, PlacedKernel]
) -> None:
    engine = SglangEngine(replace(SERVED, topology="pd"), installed, tmp_path / "engine")
    with LocalStack(engine, tmp_path / "logs") as stack:
        endpoints = stack.up(kernels["v1"], "a")
        assert send_canary(endpoints).completion_tokens == 4
