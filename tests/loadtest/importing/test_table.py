from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.errors import RecordsError, UsageError
from loadtest.importing.foreign import read_runs
from loadtest.importing.runs import import_campaign
from loadtest.importing.table import named_variants, read_table

HEAD = "block,start,variant,file\n"


def test_results_without_a_table_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="do not say which block and start"):
        import_campaign(tmp_path, {"v1": "pinned"})


@pytest.mark.parametrize(("place", "found"), [("import.csv", "is no folder"), ("nowhere", "does not exist")])
def test_what_is_given_in_place_of_the_tables_folder_is_told(tmp_path: Path, place: str, found: str) -> None:
    (tmp_path / "import.csv").touch()
    with pytest.raises(UsageError, match=rf"{place} {found}; give the folder that holds import\.csv"):
        named_variants(tmp_path / place)


def test_the_table_itself_says_which_variants_there_are(tmp_path: Path) -> None:
    (tmp_path / "import.csv").write_text("block,start,variant,file\n0,0,pinned,a\n0,1,v1,b\n1,0,v1,c\n")
    assert named_variants(tmp_path) == ("pinned", "v1")


@pytest.mark.parametrize(
    ("second", "other", "says"),
    [
        ("pinned", "a.json", "a.json of pinned holds, byte for byte, a.json of v1 in line 2; give each row"),
        ("pinned", "copy.json", "copy.json of pinned holds, byte for byte, a.json of v1 in line 2; give each row"),
        ("v1", "copy.json", "copy.json of v1 holds, byte for byte, a.json of v1 in line 2; give each row"),
    ],
)
def test_one_result_does_not_stand_for_two_starts(tmp_path: Path, second: str, other: str, says: str) -> None:
    for name in ("a.json", "copy.json"):
        (tmp_path / name).write_text("{1}")
    (tmp_path / "c.json").write_text("{2}")
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,v1,a.json\n0,1,{second},{other}\n0,2,pinned,c.json\n")
    with pytest.raises(UsageError, match=rf"import\.csv:3: {says}"):
        read_table(tmp_path, {"v1": "pinned"})


def test_a_variant_and_its_twin_too_are_measured_each_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{1}")
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,pinned,a.json\n0,1,aa,a.json\n")
    with pytest.raises(UsageError, match=r"a\.json of aa holds, byte for byte, a\.json of pinned in line 2"):
        read_table(tmp_path, {"aa": "pinned"})


def test_results_of_one_size_that_differ_are_read_with_their_starts(tmp_path: Path) -> None:
    for n, name in enumerate(("a.json", "b.json", "c.json")):
        (tmp_path / name).write_text(f"{{{n}}}")
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,v1,a.json\n0,1,v2,a.json\n0,2,pinned,b.json\n")
    found = [(row.line, row.start, row.variant, row.file) for row in read_table(tmp_path, {"v1": "pinned"})]
    assert found == [(2, 0, "v1", "a.json"), (4, 2, "pinned", "b.json")]


def test_a_file_name_longer_than_any_can_be_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,v1,{'x' * 300}\n0,1,pinned,a.json\n")
    with pytest.raises(RecordsError, match=r"import\.csv:2: x+… cannot be looked at \(.*too long\); correct the file"):
        read_table(tmp_path, {"v1": "pinned"})


def test_a_link_that_leads_to_itself_is_refused_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,v1,a.json\n0,1,pinned,loop.json\n")
    with pytest.raises(RecordsError, match=r"import\.csv:3: loop\.json cannot be looked at \(.*loop.*\); correct"):
        read_table(tmp_path, {"v1": "pinned"})


def test_a_folder_whose_name_is_longer_than_any_can_be_is_refused_in_a_line_that_says_what_to_give(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"y/?… cannot be looked at \(.*too long\); give the folder that holds"):
        named_variants(tmp_path / ("y/" * 3000))


def test_a_result_that_cannot_be_opened_is_refused_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{1}")
    (tmp_path / "import.csv").write_text(f"{HEAD}0,0,v1,a.json\n0,1,pinned,b.json\n")
    opened = Path.open

    def unreadable(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "b.json":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", unreadable)
    with pytest.raises(RecordsError, match=r"import\.csv:3: b\.json could not be read \(Permission denied\)"):
        read_table(tmp_path, {"v1": "pinned"})
    with pytest.raises(RecordsError, match=r"b\.json could not be read \(Permission denied\)"):
        read_runs(tmp_path / "b.json")
