"""Campaigns whose parts do not belong together are refused; those whose conditions changed say so at their top."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.campaign.blocks import Campaign, run
from app.campaign.compare import judge_again
from app.campaign.runs import RunFolder
from app.errors import InvalidCampaignError, ProofError, RecordsError
from app.progress import Progress
from app.records import read_json, write_json, write_text
from app.report.campaign_view import read_campaign
from app.report.html import render_html
from app.report.markdown import render_markdown
from app.report.terminal import print_campaign
from loadtest.cells import read_cells, write_cells
from loadtest.plan import Plan
from tests.app.campaign.test_blocks import KERNELS, FakeLoad
from tests.app.fake_stack import FakeStack

PLAN = Plan(seed=3, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=4)


@pytest.fixture
def stack() -> Iterator[FakeStack]:
    with FakeStack() as made:
        yield made


@pytest.fixture
def campaign(tmp_path: Path, stack: FakeStack) -> Campaign:
    return Campaign(PLAN, KERNELS, RunFolder(tmp_path / "made"), stack, Progress(16, quiet=True), {}, FakeLoad())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder(tmp_path_factory.mktemp("measured"))
    with FakeStack() as stack:
        run(Campaign(PLAN, KERNELS, folder, stack, Progress(16, quiet=True), {}, FakeLoad()))
    return folder.path


@pytest.fixture
def folder(measured: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(shutil.copytree(measured, tmp_path / "made"))


def edit(path: Path, change: dict[str, Any]) -> None:
    write_json(path, read_json(path) | change)


def edit_block(folder: RunFolder, block: int, name: str, change: dict[str, Any]) -> None:
    for start in PLAN.starts(block):
        edit(folder.start(start) / name, change)


def as_html(folder: RunFolder) -> str:
    return render_html(read_campaign(folder.path))


def as_markdown(folder: RunFolder) -> str:
    return render_markdown(read_campaign(folder.path))


def as_lines(folder: RunFolder) -> str:
    out = StringIO()
    print_campaign(read_campaign(folder.path), Console(file=out))
    return out.getvalue()


def as_json(folder: RunFolder) -> str:
    return folder.verdict_file.read_text()


READ = [(as_html, "<main>"), (as_markdown, "#### v1"), (as_lines, "C = 1")]
BY_FORM = pytest.mark.parametrize(("form", "before"), READ, ids=["html", "markdown", "terminal"])
FORMS = pytest.mark.parametrize(
    ("form", "before"), [*READ, (as_json, '"levels"')], ids=["html", "markdown", "terminal", "json"]
)


def judged(folder: RunFolder) -> None:
    write_text(folder.verdict_file, judge_again(folder).text())


def test_a_campaign_left_alone_has_no_warning(folder: RunFolder) -> None:
    assert not [line for line in judge_again(folder).headline if "changed" in line or "void" in line]


@FORMS
def test_a_changed_gpu_clock_policy_stands_above_every_figure(
    folder: RunFolder, form: Callable[[RunFolder], str], before: str
) -> None:
    for block in range(PLAN.blocks):
        edit_block(folder, block, "conditions.json", {"gpu.power.limit": "600 W" if block < 2 else "450 W"})
    judged(folder)
    text = " ".join(form(folder).split())
    said = (
        "GPU clock policy changed between blocks: gpu.power.limit was 600 W (block 1 to 2), then 450 W (block 3 to 4)"
    )
    assert said in text
    assert text.index(said) < text.index(before)


def test_a_host_of_two_cards_alike_has_the_clock_policy_of_one_such_card(folder: RunFolder) -> None:
    for block in range(PLAN.blocks):
        edit_block(folder, block, "conditions.json", {"gpu.power.limit": "600 W, 600 W" if block < 2 else "600 W"})
    assert not [line for line in judge_again(folder).headline if "clock policy" in line]


@FORMS
def test_a_void_block_stands_above_every_figure(
    folder: RunFolder, form: Callable[[RunFolder], str], before: str
) -> None:
    for start in PLAN.starts(1):
        path = folder.start(start) / "cells.csv"
        write_cells(path, [replace(c, reasons=("client too slow",)) for c in read_cells(path)])
    write_cells(folder.cells_file, [c for p in sorted(folder.path.glob("blocks/*/*/cells.csv")) for c in read_cells(p)])
    judged(folder)
    text = form(folder)
    assert text.index("void") < text.index(before)
    assert "client too slow" in text


# verdict.json follows from the rows alone, so forced.json stands beside it.
@BY_FORM
def test_a_promotion_by_force_stands_above_every_figure_of_its_campaign(
    folder: RunFolder, form: Callable[[RunFolder], str], before: str
) -> None:
    judged(folder)
    folder.keep_forced({"variant": "v1", "at": "2026-11-29", "decision": "reject", "reason": "in a <b>hurry</b>"})
    text = " ".join(form(folder).split())
    assert text.index("v1 was made stable by force at 2026-11-29") < text.index(before)
    assert ("<b>hurry" in text) == (form is as_lines)


def test_an_attempt_that_was_done_again_is_told(folder: RunFolder) -> None:
    judged(folder)
    record = read_json(folder.block(0) / "block.json") | {"void": ["start-00-v1: decode died"]}
    write_json(folder.path / "blocks" / "000.void-1" / "block.json", record)
    assert "set aside and measured again" in as_lines(folder)
    assert "set aside and measured again" in as_markdown(folder)


def test_blocks_of_another_campaign_are_refused(folder: RunFolder) -> None:
    edit(folder.manifest_file, {"plan_sha256": "0" * 64})
    with pytest.raises(InvalidCampaignError, match="manifest of another plan"):
        judge_again(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kernel_sha256": "other"}, "block 3: .* kernel_sha256 'other'"),
        ({"selector": "flashinfer"}, "block 3: .* selector 'flashinfer'"),
        ({"simulated": False}, "block 3: .* simulated False"),
    ],
)
def test_a_block_that_ran_another_kernel_than_the_manifest_names_is_refused(
    folder: RunFolder, change: dict[str, Any], said: str
) -> None:
    edit_block(folder, 2, "proof.json", change)
    with pytest.raises(InvalidCampaignError, match=said):
        judge_again(folder)


def test_a_clock_policy_that_changed_inside_a_block_is_refused(folder: RunFolder) -> None:
    edit(folder.start(PLAN.starts(1)[2]) / "conditions.json", {"cpu": "another"})
    with pytest.raises(InvalidCampaignError, match=r"block 2: .* was not measured under its block's conditions: cpu"):
        judge_again(folder)


def test_a_finished_block_without_a_proof_is_refused(folder: RunFolder) -> None:
    (folder.start(PLAN.starts(1)[2]) / "proof.json").unlink()
    with pytest.raises(RecordsError, match=r"proof.json could not be read"):
        judge_again(folder)


def test_a_block_whose_control_was_not_measured_in_it_is_no_evidence(folder: RunFolder) -> None:
    for start in PLAN.starts(1):
        if start.variant == "pinned":
            (folder.start(start) / "cells.csv").unlink()
    verdict = judge_again(folder)
    assert all(1 not in v.blocks for v in verdict.variants)
    assert any("void" in line or "not measured" in line for line in verdict.headline)


def test_a_kernel_file_changed_between_blocks_ends_the_campaign(campaign: Campaign, stack: FakeStack) -> None:
    load = FakeLoad()

    def change(*args: Any) -> Any:
        if len(load.calls) == 4:
            stack.lies = {"kernel_sha256": "changed"}
        return load(*args)

    with pytest.raises(ProofError, match="kernel_sha256 is 'changed'"):
        run(replace(campaign, load=change))
    assert campaign.folder.block_record(0) is not None
    assert campaign.folder.block_record(1) is None


@pytest.mark.parametrize("fact", ["simulated", "stack", "kernels"])
def test_resuming_under_another_manifest_is_refused_by_name(campaign: Campaign, folder: RunFolder, fact: str) -> None:
    edit(folder.manifest_file, {fact: "other"})
    with pytest.raises(InvalidCampaignError, match=f"another manifest: {fact} was other and is "):
        run(campaign)


def test_proofs_that_stand_for_lost_ones_are_told_beside_every_verdict(folder: RunFolder) -> None:
    edit_block(folder, 0, "proof.json", {"evidence": {"lost": "gone with their machine"}})
    lost = len(PLAN.starts(0))
    assert f"the proofs of {lost} starts are not their own: gone with their machine" in judge_again(folder).notes
    judged(folder)
    assert "are not their own: gone with their machine" in as_markdown(folder)
