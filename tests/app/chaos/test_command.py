"""What the command keeps: each kind as soon as it was tried, with what it was made by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chaos import command
from app.chaos.record import Tried, read_table
from app.errors import LoadError, UsageError


def survived(long: bool, folder: Path) -> Iterator[Tried]:
    yield Tried("a", 1, 1)
    yield Tried("a", 1, 1)


def lost(long: bool, folder: Path) -> Iterator[Tried]:
    yield Tried("b", 1, 1, lost=1)


def broken(long: bool, folder: Path) -> Iterator[Tried]:
    yield Tried("c", 1, 1)
    raise LoadError("no")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "GROUPS", {"good": survived, "bad": lost, "broken": broken})
    return tmp_path / "faults.csv"


def test_a_loss_anywhere_makes_the_whole_unsound(table: Path) -> None:
    assert command.run_chaos(False, "good", str(table))
    assert not command.run_chaos(False, "bad,good", str(table))


def test_rows_say_by_which_options_and_where_they_were_made(table: Path) -> None:
    command.run_chaos(True, "good", str(table))
    (row,) = read_table(table)
    assert (row.kind, row.tried) == ("a", 2)
    assert re.fullmatch(r"--long --only good; \d{4}-\d\d-\d\d, \d+ cores, load \d+", row.made)


def test_a_kind_that_breaks_off_keeps_what_was_tried_before_it(table: Path) -> None:
    with pytest.raises(LoadError):
        command.run_chaos(False, "good,broken", str(table))
    assert [(row.kind, row.tried) for row in read_table(table)] == [("a", 2), ("c", 1)]


@pytest.mark.parametrize("only", ["", ",", " "])
def test_no_kind_at_all_is_refused(table: Path, only: str) -> None:
    with pytest.raises(UsageError, match="unknown kind of fault ''; known: all, bad"):
        command.run_chaos(False, only, str(table))
    assert not table.exists()


def test_all_kinds_are_tried_where_none_is_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "GROUPS", {"good": survived, "soak": lost})
    assert command.run_chaos(False, "all", str(table))
    assert not command.run_chaos(True, "all", str(table))


def test_an_unknown_kind_is_refused_before_anything_is_tried(table: Path) -> None:
    with pytest.raises(UsageError, match="unknown kind of fault 'worse'"):
        command.run_chaos(False, "good,worse", str(table))
    assert not table.exists()
