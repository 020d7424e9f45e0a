from __future__ import annotations

from pathlib import Path

import pytest

from app.campaign.remeasured import measure_again
from app.campaign.runs import RunFolder
from app.errors import RecordsError, UsageError
from app.records import write_json
from loadtest.cells import read_cells
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A campaign whose last block was never finished."""
    plan = make_plan()
    run = RunFolder(make_campaign(tmp_path / "run", plan, draw_cells(plan)))
    (run.block(plan.blocks - 1) / "block.json").unlink()
    return run


def test_cells_are_made_anew_from_the_rows_of_finished_blocks_alone(run: RunFolder) -> None:
    plan = run.plan()
    first, last = plan.starts(0)[0], plan.starts(plan.blocks - 1)[0]
    drawn = {(c.block, c.start, c.concurrency): c.tokens_per_s for c in read_cells(run.cells_file)}
    written = measure_again(run)
    assert written == sum(len(plan.starts(b)) for b in range(plan.blocks - 1)) * len(plan.concurrencies)
    for cell in read_cells(run.start(first) / "cells.csv"):
        assert cell.tokens_per_s == pytest.approx(drawn[cell.block, cell.start, cell.concurrency], rel=0.1)
    assert not (run.start(last) / "cells.csv").exists()


def test_a_start_without_rows_is_named(run: RunFolder) -> None:
    place = run.start(run.plan().starts(1)[0])
    (place / "rows.parquet").unlink()
    with pytest.raises(RecordsError, match=place.name):
        measure_again(run)


def test_an_import_has_no_rows_to_measure(run: RunFolder) -> None:
    write_json(run.manifest_file, {**run.manifest(), "imported": True})
    with pytest.raises(UsageError, match="no rows"):
        measure_again(run)
