"""The short form in small: real services, the real router and the real driver, with faults in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from app.campaign.runs import RunFolder
from app.chaos.faults import killed
from app.chaos.killed_lab import KilledLab, half_blocks
from app.chaos.streams import carry
from app.chaos.trial import Trial, finished, small_plan
from app.progress import Progress
from app.records import write_json
from loadtest.cells import void_cells, write_cells


def settled(folder: RunFolder, block: int, *, void: bool = False, attempt: int = 1) -> None:
    for start in small_plan(2, 1).starts(block):
        folder.start(start).mkdir(parents=True)
        write_cells(folder.start(start) / "cells.csv", void_cells(start, ["x"]))
    record = {"schema": 1, "block": block, "attempt": attempt, "void": ["lag"] * void, "finished_at": ""}
    write_json(folder.block(block) / "block.json", record)


def test_a_block_is_finished_when_nothing_will_be_done_about_it_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    settled(folder, 0)
    settled(folder, 1, void=True)
    assert finished(folder).keys() == {0}
    settled(RunFolder(tmp_path / "b"), 1, void=True, attempt=3)
    assert finished(RunFolder(tmp_path / "b")).keys() == {1}


def test_a_changed_cell_changes_what_is_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    settled(folder, 0)
    before = finished(folder)
    path = folder.start(small_plan(2, 1).starts(0)[0]) / "cells.csv"
    path.write_text(path.read_text().replace("x", "y"))
    assert finished(folder)[0] != before[0]


def test_a_block_of_which_some_cells_are_missing_is_half(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    settled(folder, 0)
    assert half_blocks(folder, small_plan(2, 1)) == 0
    path = folder.start(small_plan(2, 1).starts(0)[0]) / "cells.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert half_blocks(folder, small_plan(2, 1)) == 1


def sitting(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    def begin(lab: KilledLab) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", script], cwd=lab.folder)

    monkeypatch.setattr(KilledLab, "_sitting", begin)


def test_a_lab_that_broke_off_by_itself_was_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting(monkeypatch, "exit 6")
    told = KilledLab(tmp_path, 5).kill(after_s=10)
    assert (told.tried, told.survived, told.note) == (1, 0, "a sitting ended by itself with code 6")


def test_a_lab_is_not_killed_before_it_has_begun_what_it_is_killed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting(monkeypatch, "sleep 0.5; touch begun; exec sleep 30")
    begun = tmp_path / "begun"
    assert KilledLab(tmp_path, 5, under_way=begun.exists).kill(after_s=0.1).sound
    assert begun.exists()


@pytest.mark.parametrize("code", [0, 7, 8, 9])
def test_a_campaign_that_came_to_its_verdict_is_no_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sitting(monkeypatch, f"exit {code}")
    monkeypatch.setattr(KilledLab, "_check_end", lambda lab: 0)
    lab = KilledLab(tmp_path, 5)
    first = lab.run
    assert lab.kill(after_s=10).tried == 0
    assert lab.run != first


@pytest.mark.slow
def test_a_campaign_survives_a_decode_service_killed_while_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One level of the two: a kill ends a start whichever it comes in.
    monkeypatch.setattr("app.chaos.trial.LEVELS", (4,))
    (told,) = Trial(RunFolder(tmp_path / "run"), [killed("decode", "measuring")], 7).run(Progress(1, quiet=True))
    assert (told.tried, told.survived, told.lost, told.leaked) == (1, 1, 0, 0)
    assert told.note == "block void, done again"
    assert told.seconds < 10


@pytest.mark.slow
def test_a_killed_lab_leaves_no_process_and_loses_nothing(tmp_path: Path) -> None:
    told = KilledLab(tmp_path, 5).kill(after_s=6.0)
    assert (told.tried, told.survived, told.lost, told.leaked) == (1, 1, 0, 0)


@pytest.mark.slow
def test_many_streams_come_through_whole(tmp_path: Path) -> None:
    found = carry(40, 4.0, tmp_path, output_tokens=12)
    assert (found.failed, found.short, found.lost) == (0, 0, 0)
    assert found.requests >= 80
    assert found.tokens_per_stream_s == pytest.approx(5, rel=0.2)
