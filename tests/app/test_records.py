from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import RecordsError, UsageError
from app.records import held, owned, read_json, read_record, write_json, write_text


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "a.json", {"x": [1, 2]})
    assert read_json(tmp_path / "deep" / "a.json") == {"x": [1, 2]}


def test_a_failed_write_keeps_the_old_file_and_leaves_no_partial_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"


def test_a_full_disk_is_one_line_that_says_how_to_mend_it() -> None:
    with pytest.raises(RecordsError, match=r"/dev/full.*could not be written: .*; see that its folder can be written$"):
        write_text(Path("/dev/full/x"), "row")


def test_a_torn_json_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"a": ')
    with pytest.raises(RecordsError, match=r"torn\.json is not JSON"):
        read_json(tmp_path / "torn.json")


def test_two_labs_in_one_folder_refuse_each_other(tmp_path: Path) -> None:
    with owned(tmp_path), pytest.raises(UsageError, match="in use by another lab"), owned(tmp_path):
        pass


def test_a_folder_is_free_again_after_its_owner_left(tmp_path: Path) -> None:
    with owned(tmp_path):
        pass
    with owned(tmp_path):
        pass


@pytest.mark.parametrize("schema", [3, 0, "1", None])
def test_a_record_of_an_unknown_schema_is_refused_by_name(tmp_path: Path, schema: object) -> None:
    write_json(tmp_path / "block.json", {"schema": schema})
    with pytest.raises(RecordsError, match=r"block\.json has schema .*reads 1 to 2"):
        read_record(tmp_path / "block.json", newest=2)


@pytest.mark.parametrize("record", [{"schema": 1}, {"schema": 2}, {}])
def test_a_record_of_an_older_schema_is_read(tmp_path: Path, record: dict[str, int]) -> None:
    write_json(tmp_path / "block.json", record)
    assert read_record(tmp_path / "block.json", newest=2) == record


def test_a_lock_of_a_killed_lab_does_not_stay(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from app.records import owned\n"
        "with owned(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as lab:
        assert lab.stdout is not None
        lab.stdout.readline()
        with pytest.raises(UsageError, match="in use"), owned(tmp_path):
            pass
        lab.kill()
    with owned(tmp_path):
        pass


def test_a_folder_that_cannot_be_locked_is_one_line() -> None:
    with pytest.raises(RecordsError, match=r"\.lock could not be opened"), owned(Path("/dev/null")):
        pass


def test_a_folder_is_held_only_while_a_lab_has_it(tmp_path: Path) -> None:
    assert not held(tmp_path / "gone")
    with owned(tmp_path):
        assert held(tmp_path)
    assert not held(tmp_path)
    with owned(tmp_path):
        pass
