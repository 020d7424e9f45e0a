from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import RecordsError, UsageError
from app.records import owned, read_json, write_json, write_text


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
    with pytest.raises(RecordsError, match=r"/dev/full.*could not be written"):
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
