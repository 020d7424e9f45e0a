"""A cell measured from given rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadtest.cells import Cell
from loadtest.client.rows import Row, Rows
from loadtest.measure.window import measure
from loadtest.plan import Plan, Start


@pytest.fixture
def cell(
    as_rows: Callable[[list[Row]], Rows], load_record: Callable[..., dict[str, Any]], plan: Plan
) -> Callable[..., Cell]:
    """Measures rows with one level."""

    def make(rows: list[Row], **changes: Any) -> Cell:
        return measure(Start(2, 1, "v", (4,)), as_rows(rows), load_record(**changes), plan)[0]

    return make
