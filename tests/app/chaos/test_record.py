from __future__ import annotations

from pathlib import Path

import pytest

from app.chaos.record import BEGIN, END, Tried, merged, read_table, table_csv, table_markdown, together, write_page
from app.errors import RecordsError

ROWS = [Tried("a | b", 2, 2, 0, 0, 1.25, note='said "no"', made="today"), Tried("docker", skipped="no Engine, here")]


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table_csv(ROWS))
    kept = read_table(tmp_path / "t.csv")
    assert (kept[0].kind, kept[0].survived, kept[0].note, kept[0].made) == ("a | b", 2, 'said "no"', "today")
    assert kept[1] == ROWS[1]


def test_a_foreign_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("kind,tried\nx,many\n")
    with pytest.raises(RecordsError, match=r"t\.csv is no table of faults"):
        read_table(tmp_path / "t.csv")


def test_trials_of_a_kind_are_one_line_with_the_longest_time() -> None:
    found = together([Tried("a", 1, 1, seconds=2.0), Tried("b"), Tried("a", 1, 0, lost=1, seconds=1.0, note="x")])
    assert found == [Tried("a", 2, 1, 1, 0, 2.0, note="x"), Tried("b")]


def test_a_kind_that_is_skipped_now_keeps_what_was_seen_before() -> None:
    assert merged([Tried("a", 3, 3)], [Tried("a", skipped="no Engine"), Tried("b", 1, 1)]) == [
        Tried("a", 3, 3),
        Tried("b", 1, 1),
    ]


@pytest.mark.parametrize("row", [Tried("a", 2, 1), Tried("a", 1, 1, lost=1), Tried("a", 1, 1, leaked=1)])
def test_anything_lost_left_or_not_survived_is_unsound(row: Tried) -> None:
    assert not row.sound
    assert Tried("a", 1, 1).sound


def test_the_page_keeps_what_stands_around_its_table(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(table_markdown(ROWS, "head"), page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| a | b |" not in text
    assert "not tried: no Engine, here" in text


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "faults.md").write_text("no marks")
    with pytest.raises(RecordsError, match="lacks the marks"):
        write_page("", tmp_path / "faults.md")
