from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.campaign import compare, conformance
from app.campaign.blocks import finished_cells
from app.campaign.compare import begin, judge_again
from app.campaign.runs import RunFolder, measured_now, new_run, open_run, point_latest
from app.campaign.runtimes import Setup
from app.environment import ROOT
from app.errors import InvalidCampaignError, RecordsError, UnwrittenError, UsageError
from app.progress import Progress
from app.records import owned, read_json, write_json
from loadtest.cells import read_cells, write_cells
from loadtest.plan import Plan

PLAN = Plan(seed=1, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2)


def test_a_new_run_refuses_an_id_that_holds_a_campaign(tmp_path: Path) -> None:
    new_run("a", tmp_path).keep_plan(PLAN)
    with pytest.raises(UsageError, match="--resume a"):
        new_run("a", tmp_path)


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".hidden", "x" * 81])
def test_an_id_cannot_leave_the_runs_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        open_run(name, tmp_path)


def test_an_unknown_campaign_lists_the_known_ones(tmp_path: Path) -> None:
    new_run("known", tmp_path).keep_plan(PLAN)
    with pytest.raises(UsageError, match="known: known"):
        open_run("other", tmp_path)


def test_a_campaign_is_found_by_the_path_of_its_folder_too(tmp_path: Path) -> None:
    new_run("known", tmp_path).keep_plan(PLAN)
    assert open_run(f"{tmp_path}/known/", tmp_path).path.name == "known"
    with pytest.raises(UsageError, match="unknown campaign 'other'"):
        open_run(f"{tmp_path}/other", tmp_path)


def test_latest_points_to_the_last_campaign_and_moves(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = new_run(name, tmp_path)
        folder.keep_plan(PLAN)
        point_latest(folder)
    assert open_run("latest", tmp_path).path.name == "b"


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.keep_plan(PLAN)
    with pytest.raises(InvalidCampaignError, match="another plan"):
        folder.keep_plan(Plan(seed=2, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2))


def test_a_changed_manifest_names_the_field(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.keep_manifest({"model": "a", "engine": "sim"})
    with pytest.raises(InvalidCampaignError, match="manifest: model was a and is b; make it as it was"):
        folder.keep_manifest({"model": "b", "engine": "sim"})


def test_a_changed_fact_below_a_field_is_named_with_what_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.keep_manifest({"stack": {"arch": "sm_90", "environment.NCCL_NVLS_ENABLE": "0"}})
    with pytest.raises(
        InvalidCampaignError, match=r"manifest: stack.environment.NCCL_NVLS_ENABLE was 0 and is not set;"
    ):
        folder.keep_manifest({"stack": {"arch": "sm_90"}})


def test_of_two_long_lines_of_flags_the_words_that_differ_are_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.keep_manifest({"arguments": "--flag value " * 20 + "--context-length 4096 --seed 1"})
    with pytest.raises(InvalidCampaignError, match=r"was \.\.\.4096 --seed 1 and is \.\.\.5120 --seed 1;"):
        folder.keep_manifest({"arguments": "--flag value " * 20 + "--context-length 5120 --seed 1"})


def test_a_block_set_aside_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in range(2):
        write_json(folder.block(0) / "block.json", {"void": ["lag"]})
        folder.set_aside(0, "void")
    assert folder.block_record(0) is None
    assert len(folder.void_attempts()) == 2


@pytest.fixture
def older(tmp_path: Path) -> RunFolder:
    """A finished campaign of schema 1, as the lab wrote it before orders were relative and cells had goodput."""
    shutil.copytree(Path(__file__).with_name("older_run"), tmp_path / "older")
    return RunFolder(tmp_path / "older")


def test_an_older_run_is_read_and_judged(older: RunFolder) -> None:
    assert older.manifest()["plan_sha256"] == older.plan().sha256()
    assert judge_again(older).variants[0].variant == "v1"


def test_cells_beside_a_verdict_are_those_it_was_made_of(older: RunFolder) -> None:
    write_cells(older.cells_file, [*finished_cells(older, older.plan())][:2])
    judge_again(older)
    # As text: what was not measured is NaN, which equals nothing.
    assert repr(read_cells(older.cells_file)) == repr([*finished_cells(older, older.plan())])


def test_judging_the_same_rows_again_gives_the_same_bytes_wherever_the_folder_lies(
    older: RunFolder, tmp_path: Path
) -> None:
    before = judge_again(older).text()
    (tmp_path / "elsewhere").mkdir()
    moved = older.path.rename(tmp_path / "elsewhere" / older.path.name)
    assert judge_again(RunFolder(moved)).text() == before


@pytest.mark.parametrize("name", ["manifest.json", "blocks/001/block.json"])
def test_a_run_of_a_later_schema_is_refused_by_the_file(older: RunFolder, name: str) -> None:
    write_json(older.path / name, read_json(older.path / name) | {"schema": 99})
    with pytest.raises(RecordsError, match=f"{Path(name).name} has schema 99"):
        judge_again(older)


def test_a_plan_of_a_later_schema_is_refused(older: RunFolder) -> None:
    write_json(older.plan_file, read_json(older.plan_file) | {"schema": 99})
    with pytest.raises(InvalidCampaignError, match="plan schema 99"):
        older.plan()


def test_a_lab_that_finds_the_folder_taken_writes_nothing_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with owned(Path("runs/a")), pytest.raises(UsageError, match="in use by another lab"):
        begin(PLAN, Setup(), "a", Progress(1, quiet=True))
    assert [p.name for p in Path("runs/a").iterdir()] == [".lock"]


def test_a_campaign_in_use_is_not_resumed_and_its_client_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new_run("a").keep_plan(PLAN)
    monkeypatch.setattr(conformance, "require_conformance", lambda _: pytest.fail("checked before the lock was held"))
    with owned(Path("runs/a")), pytest.raises(UsageError, match="in use by another lab"):
        compare.resume("a", Progress(1, quiet=True))


@pytest.mark.parametrize("end", [KeyboardInterrupt(), UnwrittenError("a file could not be written; free some space")])
def test_a_campaign_cut_short_by_hand_or_for_want_of_room_says_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    def ended(_: RunFolder) -> None:
        raise end

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(conformance, "require_conformance", ended)
    with pytest.raises(type(end), match=r"go on with `\./lab compare --resume a`"):
        begin(PLAN, Setup(demo=True), "a", Progress(1, quiet=True))
    assert compare.setup_in(open_run("a")).demo
    assert measured_now() == []


@pytest.mark.parametrize("name", ["x" * 5000, f"{'x' * 5000}/known", "elsewhere/known"])
def test_a_path_that_is_none_of_the_folders_is_no_campaigns_name(tmp_path: Path, name: str) -> None:
    new_run("known", tmp_path).keep_plan(PLAN)
    with pytest.raises(UsageError, match="campaign id"):
        open_run(name, tmp_path)


MEASURING = """
import sys
from app.campaign import conformance
from app.program import main

def measured(_):
    late = [n for n, m in sys.modules.items() if type(m).__name__ == "_LazyModule"]
    print(*(n for n in late if n.startswith(("app.campaign", "app.ledger.c", "app.report", "loadtest"))), flush=True)
    sys.exit(0)

conformance.require_conformance = measured
main(sys.argv[1:])
"""


def test_what_judges_and_reports_is_loaded_before_hours_of_measuring_begin(tmp_path: Path) -> None:
    words = [sys.executable, "-c", MEASURING, "--search-root", str(ROOT), "compare", "--variants", "v1", "--quiet"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, ""), ended.stderr
