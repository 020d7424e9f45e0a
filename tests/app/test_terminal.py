from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from app.image.listing import COLUMNS, ImageRow
from app.kernel.variants import TABLE_COLUMNS, load_variants, table_rows
from app.terminal import show

VARIANTS = table_rows(load_variants().variants.values())
IMAGE = ImageRow(
    "decode-ab:v2", "v2", "triton", "ab" * 6, "0.5.17", "3.6.0", 39_581_000_000, "2026-11-02 09:05", ("decode",), True
)
PLAN = [("4", "3.2", *["3.28"] * 20)]
TABLES = [
    (TABLE_COLUMNS, VARIANTS),
    (COLUMNS, [IMAGE.cells()]),
    (("blocks", "hours", *(f"C={c}" for c in range(100, 120))), PLAN),
]


def shown(columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int) -> list[str]:
    table, out = Table(*columns, title="a title"), io.StringIO()
    for row in rows:
        table.add_row(*row)
    show(table, console=Console(file=out, width=width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("columns", "rows"), TABLES, ids=["variants", "images", "plan"])
def test_no_heading_and_no_cell_is_cut_or_folded(
    columns: tuple[str, ...], rows: list[tuple[str, ...]], width: int
) -> None:
    lines = shown(columns, rows, width)
    assert max(map(len, lines)) <= width
    assert [text for text in (*columns, *sum(rows, ())) if not any(text in line for line in lines)] == []


def test_every_part_names_its_rows_again_and_the_title_stands_once() -> None:
    lines = shown(("variant", "one", "two"), [("v1", "x" * 40, "y" * 40)], 60)
    assert [line.split()[0] for line in lines if line.startswith("v1")] == ["v1", "v1"]
    assert sum("a title" in line for line in lines) == 1


def test_a_cell_wider_than_the_screen_is_folded_without_loss() -> None:
    lines = shown(("variant", "one"), [("v1", "z" * 100)], 60)
    assert "".join(lines).count("z") == 100
