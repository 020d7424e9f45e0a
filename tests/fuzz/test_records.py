"""Records of a run folder that somebody else wrote or changed: read, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.campaign.runs import RunFolder
from loadtest.cells import read_cells
from loadtest.plan import Plan
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan
from tests.fuzz.trying import damaged, refusal, torn, tries

PLAN = Plan(seed=3, controls={"v1": "pinned"}, concurrencies=(1, 8), blocks=2).to_json()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = make_plan()
    return make_campaign(tmp_path_factory.mktemp("runs") / "made", plan, draw_cells(plan))


@tries(200)
@given(value=damaged(PLAN))
@example(value=PLAN | {"blocks": 10**12})
@example(value=PLAN | {"concurrencies": [10**12]})
@example(value=PLAN | {"time_scale": float("nan")})
@example(value=PLAN | {"controls": {"../../../etc": "pinned"}})
def test_any_plan_gives_starts_inside_its_folder_or_is_refused(value: Any) -> None:
    def read() -> None:
        plan = Plan.from_json(json.loads(json.dumps(value)))
        folder = RunFolder(Path("/runs/one"))
        assert all(folder.start(s).parent == folder.block(1) for s in plan.starts(1))

    refusal(read)


@tries(60)
@given(data=st.data())
def test_any_cells_are_read_or_refused(made: Path, data: st.DataObject) -> None:
    path = made / "any.csv"
    path.write_bytes(data.draw(torn((made / "cells.csv").read_bytes()[:2000])))
    refusal(lambda: read_cells(path))
