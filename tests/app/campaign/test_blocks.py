from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.campaign.blocks import Campaign, finished_cells, run
from app.campaign.runs import RunFolder
from app.engine import Endpoints
from app.engine.inspection import Inspection
from app.errors import InvalidCampaignError, LoadError, ProofError
from app.kernel.placed import PlacedKernel
from app.progress import Progress
from app.records import read_json, write_json
from app.stack.watch import Watch
from loadtest.cells import Cell, write_cells
from loadtest.plan import Plan, Start, WindowRules
from tests.app.fake_stack import FakeStack

PLAN = Plan(seed=3, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2)
KERNELS = {n: PlacedKernel(n, "triton", Path(f"{n}.py"), n * 8, "base", "_kernel") for n in ("pinned", "v1")}


class FakeLoad:
    """Stands for the load driver: makes cells at once; `faults` are raised or returned as reasons, one per call."""

    def __init__(self) -> None:
        self.calls: list[Start] = []
        self.faults: dict[int, Any] = {}

    def __call__(self, order: Path, plan: Plan, start: Start, watch: Watch) -> list[Cell]:
        self.calls.append(start)
        fault = self.faults.get(len(self.calls))
        if isinstance(fault, BaseException):
            raise fault
        cells = [_cell(start, c, (fault,) if fault else ()) for c in start.concurrencies]
        write_cells(order.with_name("cells.csv"), cells)
        return cells


def _cell(start: Start, concurrency: int, reasons: tuple[str, ...]) -> Cell:
    return Cell(
        start.block, start.index, start.variant, concurrency, 100.0, 10.0, 1000, 10, 1, 2, 3, 3, 4, 5, 1, 0, 0, reasons
    )


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    with FakeStack() as made:
        yield made


@pytest.fixture
def load() -> FakeLoad:
    return FakeLoad()


@pytest.fixture
def campaign(tmp_path: Path, stack: FakeStack, load: FakeLoad) -> Campaign:
    return Campaign(PLAN, KERNELS, RunFolder(tmp_path), stack, Progress(8, quiet=True), {}, load)


def test_every_start_of_the_plan_is_measured_once_in_order(campaign: Campaign, load: FakeLoad) -> None:
    cells = run(campaign)
    assert load.calls == [s for b in range(2) for s in PLAN.starts(b)]
    assert len(cells) == 2 * 4 * 2


def test_each_blocks_end_is_told_the_lasts_before_the_stack_is_stopped(
    campaign: Campaign, load: FakeLoad, stack: FakeStack
) -> None:
    told = list[tuple[int, int]]()
    load.faults = {2: "client lag p99 31 ms"}
    run(replace(campaign, ended=lambda: told.append((len(load.calls), stack.downs))))
    assert told == [(8, 0), (12, 0)]


def test_a_void_block_is_done_again_whole_and_its_first_attempt_is_kept(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = {2: "client lag p99 31 ms"}
    cells = run(campaign)
    assert [s.block for s in load.calls] == [0] * 8 + [1] * 4
    assert all(c.valid for c in cells)
    assert "client lag" in campaign.folder.void_attempts()[0]["void"][0]


@pytest.mark.parametrize(
    ("reason", "said"), [("client late, loop lag p99 30.0 ms", True), ("a queue at decode", False)]
)
def test_what_to_do_is_said_of_a_block_that_a_busy_machine_voided(
    campaign: Campaign, load: FakeLoad, capsys: pytest.CaptureFixture[str], reason: str, said: bool
) -> None:
    load.faults[2] = reason
    run(replace(campaign, progress=Progress(8, quiet=True), advice="end other work"))
    assert ("end other work" in capsys.readouterr().err) == said


def test_a_service_that_dies_in_a_block_voids_the_block_and_the_campaign_goes_on(
    campaign: Campaign, load: FakeLoad, stack: FakeStack
) -> None:
    load.faults = {3: LoadError("decode ended with exit code -9")}
    assert len(run(campaign)) == 16
    assert stack.downs == 2


def test_a_service_found_dead_after_the_load_voids_the_block_by_name(
    campaign: Campaign, load: FakeLoad, stack: FakeStack
) -> None:
    def die_once(order: Path, plan: Plan, start: Start, watch: Watch) -> list[Cell]:
        stack.dead = ["decode"] if len(load.calls) == 1 else []
        return load(order, plan, start, watch)

    run(replace(campaign, load=die_once))
    assert "decode ended during the load" in campaign.folder.void_attempts()[0]["void"][0]


class DyingStack(FakeStack):
    """Its router is gone, without a word to who asks, from its second start to its third."""

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        endpoints = FakeStack.switch(self, kernel, label)
        self.dead, self.slow_s = (["router"], 20.0) if len(self.switched) == 2 else ([], 0.0)
        return endpoints


def test_a_service_that_dies_at_the_canary_is_named_long_before_the_canary_gives_up(campaign: Campaign) -> None:
    began = time.monotonic()
    with DyingStack() as dying:
        run(replace(campaign, stack=dying))
    assert "router ended at the canary" in campaign.folder.void_attempts()[0]["void"][0]
    assert time.monotonic() - began < 10


def test_a_lab_killed_after_a_void_attempt_does_the_block_again(campaign: Campaign, load: FakeLoad) -> None:
    record = {"schema": 1, "block": 0, "attempt": 1, "void": ["lag"], "finished_at": ""}
    write_json(campaign.folder.block(0) / "block.json", record)
    assert len(run(campaign)) == 16
    assert campaign.folder.void_attempts() == [record]


def test_a_block_that_stays_void_ends_with_its_reasons(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = dict.fromkeys(range(1, 13), "throttled")
    cells = run(campaign)
    assert [c.valid for c in cells] == [False] * 8 + [True] * 8


def test_two_blocks_that_stay_void_for_one_reason_end_the_campaign_with_the_option_to_change(
    campaign: Campaign, load: FakeLoad
) -> None:
    plan = replace(PLAN, blocks=4, design="single", window=WindowRules(window_s=0.5))
    longer = replace(campaign, plan=plan)
    load.faults = dict.fromkeys(range(1, 100), "no request began or ended in the window")
    with pytest.raises(
        InvalidCampaignError,
        match=r"in all 3 attempts \(start-\d+-\w+ C=1: no request .* fixed: a request takes 0\.77 s",
    ):
        run(longer)
    assert (len(load.calls), campaign.folder.block_record(2)) == (2 * 3 * 2, None)
    load.faults = {}
    assert [c.valid for c in run(longer)] == [False] * 8 + [True] * 8


def test_a_lasting_reason_that_no_option_mends_ends_the_campaign_with_the_command_to_go_on(
    campaign: Campaign, load: FakeLoad
) -> None:
    load.faults = dict.fromkeys(range(1, 100), "decode, 17 requests retracted")
    with pytest.raises(InvalidCampaignError, match=r"C=1: decode, 17 requests retracted\).* once mended, .*--resume"):
        run(campaign)


def test_answers_too_short_for_decode_alone_end_the_campaign_at_its_first_attempt(
    campaign: Campaign, load: FakeLoad, stack: FakeStack
) -> None:
    plan = replace(PLAN, window=WindowRules(decode_only=True))
    reason = "2 requests began or ended in a window of decode alone; --lengths must ask for at least 1,100 tokens"
    load.faults = {1: reason}
    with pytest.raises(InvalidCampaignError, match=r"block 1 is void.*Begin a new campaign.*--lengths 1024,1100"):
        run(replace(campaign, plan=plan))
    assert (len(load.calls), stack.downs) == (4, 1)


def test_two_blocks_that_a_busy_machine_voids_end_nothing(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = dict.fromkeys(range(1, 100), "client late, loop lag p99 30.0 ms")
    assert not any(c.valid for c in run(replace(campaign, plan=replace(PLAN, design="single"))))


def test_a_start_that_could_never_be_measured_leaves_void_cells(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = {n: LoadError("decode ended with exit code 1") for n in (2, 4, 6)}
    cells = run(campaign)
    missing = [c for c in cells if c.block == 0 and c.start == 1]
    assert [c.valid for c in missing] == [False, False]
    assert "decode ended with exit code 1" in missing[0].reasons[0]


def test_a_load_that_fails_at_the_very_first_start_ends_the_campaign(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = {1: LoadError("no such option")}
    with pytest.raises(LoadError, match="no such option"):
        run(campaign)


def test_a_failed_proof_ends_the_campaign_and_brings_the_stack_down(campaign: Campaign, stack: FakeStack) -> None:
    stack.lies = {"kernel_sha256": "other"}
    with pytest.raises(ProofError):
        run(campaign)
    assert stack.downs == 1


def test_an_interrupted_campaign_goes_on_at_its_unfinished_block(campaign: Campaign, load: FakeLoad) -> None:
    load.faults = {6: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        run(campaign)
    assert len(list(finished_cells(campaign.folder, PLAN))) == 8
    load.faults = {}
    assert len(run(campaign)) == 16
    assert [s.block for s in load.calls] == [0] * 4 + [1] * 2 + [1] * 4


def test_resuming_under_another_kernel_is_refused(campaign: Campaign) -> None:
    run(campaign)
    changed = {**KERNELS, "v1": replace(KERNELS["v1"], sha256="changed")}
    with pytest.raises(InvalidCampaignError, match=r"kernels\.v1\.sha256 was \w+ and is changed;"):
        run(replace(campaign, kernels=changed))


def test_a_block_whose_starts_were_served_differently_is_refused(
    campaign: Campaign, load: FakeLoad, stack: FakeStack
) -> None:
    original = load.__call__

    def change_model(*args: Any) -> list[Cell]:
        stack.lies = {"model": "another"}
        return original(*args)

    with pytest.raises(InvalidCampaignError, match=r"served\.model"):
        run(replace(campaign, load=change_model))


def test_each_start_keeps_its_proof_and_its_order(campaign: Campaign) -> None:
    run(campaign)
    folder = campaign.folder.start(PLAN.starts(1)[2])
    assert read_json(folder / "proof.json")["kernel_sha256"] == KERNELS[PLAN.starts(1)[2].variant].sha256
    assert read_json(folder / "order.json")["prompt_seed"] == PLAN.prompt_seed(1)


class InspectedStack(FakeStack):
    """Shows something after a load, or a fault."""

    simulated = False

    def __init__(self) -> None:
        super().__init__()
        self.inspected: list[Inspection] = []
        self.fault = ""

    def inspect(self, endpoints: Endpoints, asked: Inspection) -> dict[str, Any]:
        self.inspected.append(asked)
        if self.fault:
            raise ProofError(self.fault)
        return {"trace": {"count": len(self.inspected)}}


@pytest.fixture
def inspected() -> Iterator[InspectedStack]:
    with InspectedStack() as made:
        yield made


def test_each_variant_is_looked_at_once_after_a_load(campaign: Campaign, inspected: InspectedStack) -> None:
    run(replace(campaign, stack=inspected))
    assert sorted(asked.variant for asked in inspected.inspected) == ["pinned", "v1"]
    first = inspected.inspected[0]
    assert (first.concurrency, first.controls, first.folder.parent.name) == (8, {"v1": "pinned"}, "000")
    proof = read_json(first.folder / "proof.json")
    assert (proof["evidence"]["after_load"], proof["canary_s"] > 0) == ({"trace": {"count": 1}}, True)


def test_a_void_start_is_not_looked_at_and_its_block_is_looked_at_anew(
    campaign: Campaign, load: FakeLoad, inspected: InspectedStack
) -> None:
    load.faults = {2: "client lag p99 31 ms"}
    run(replace(campaign, stack=inspected))
    assert [s.variant for s in PLAN.starts(0)] == ["v1", "pinned", "pinned", "v1"]
    assert [asked.variant for asked in inspected.inspected] == ["v1", "pinned"] * 2


def test_what_speaks_against_a_start_ends_the_campaign(campaign: Campaign, inspected: InspectedStack) -> None:
    inspected.fault = "v1's attention differs from pinned's"
    with pytest.raises(ProofError, match="attention differs"):
        run(replace(campaign, stack=inspected))
    assert list(finished_cells(campaign.folder, PLAN)) == []
