from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import InvalidCampaignError, UsageError
from app.records import write_json
from app.runs import RunFolder, new_run, open_run, point_latest
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
    with pytest.raises(InvalidCampaignError, match="model differ"):
        folder.keep_manifest({"model": "b", "engine": "sim"})


def test_a_block_set_aside_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for _ in range(2):
        write_json(folder.block(0) / "block.json", {"void": ["lag"]})
        folder.set_aside(0, "void")
    assert folder.block_record(0) is None
    assert len(folder.void_attempts()) == 2
