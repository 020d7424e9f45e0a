"""Cells made anew from a campaign's raw rows, by the rules of this version."""

from __future__ import annotations

from app.campaign.runs import RunFolder
from app.errors import UsageError
from loadtest.cells import write_cells
from loadtest.client.rows import LOAD, read_load, read_rows
from loadtest.measure.window import measure


def measure_again(folder: RunFolder) -> int:
    """Rewrites the cells of every start of every finished block; gives their number.

    A block keeps its record: one that was void stays so, one that was not may come to hold a void cell. UsageError for
    a campaign without rows of its own; RecordsError names the start whose rows are missing or torn.
    """
    if folder.imported:
        raise UsageError(f"{folder.path.name} was imported and has no rows; leave --from-rows out")
    plan, written = folder.plan(), 0
    for block in range(plan.blocks):
        if folder.block_record(block) is None:
            continue
        for start in plan.starts(block):
            place = folder.start(start)
            # A block that stayed void may hold a start that was never loaded.
            if (place / LOAD).is_file():
                cells = measure(start, read_rows(place), read_load(place), plan)
                write_cells(place / "cells.csv", cells)
                written += len(cells)
    return written
