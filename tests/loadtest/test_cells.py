from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import RecordsError
from loadtest.cells import Cell, read_cells, write_cells

CELL = Cell(0, 1, "v1", 8, 845.123456789, 30.0, 25353, 90, 1.5, 2.5, 113.6, 113.5, 120.0, 2000.0, 7.9, 0, 0, (), 2.5)


def test_cells_from_before_goodput_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    write_cells(path, [CELL])
    older = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(older) + "\n")
    assert math.isnan(read_cells(path)[0].goodput_per_s)


def test_cells_come_back_exactly(tmp_path: Path) -> None:
    void = replace(CELL, reasons=("client lag p99 31 ms", "1 failure"))
    write_cells(tmp_path / "cells.csv", [CELL, void])
    assert read_cells(tmp_path / "cells.csv") == [CELL, void]
    assert (CELL.valid, void.valid) == (True, False)


def test_an_undefined_figure_stays_undefined(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells.csv", [replace(CELL, tpot_p50_ms=math.nan)])
    assert math.isnan(read_cells(tmp_path / "cells.csv")[0].tpot_p50_ms)


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    write_cells(path, [CELL])
    path.write_text(path.read_text() + "0,1,v1,8,84")
    with pytest.raises(RecordsError, match=r"cells\.csv:3: not a cell"):
        read_cells(path)


def test_a_last_line_torn_inside_a_number_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    write_cells(path, [CELL, replace(CELL, goodput_per_s=2.25)])
    path.write_text(path.read_text().rstrip("\n")[:-1])
    with pytest.raises(RecordsError, match=r"cells\.csv:3: not a cell \(the line is torn\)"):
        read_cells(path)
