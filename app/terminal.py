"""Tables on the terminal: one that is wider than the screen is shown in parts, so that no word is cut or folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Column, Table

PLAIN_WIDTH = 200


def terminal() -> Console:
    """A terminal's own width; wide enough for most tables where output goes to a file."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, no_color=True)


def show(*shown: RenderableType, console: Console | None = None) -> None:
    """Prints each, a table in as many parts as the console's width asks for."""
    console = console or terminal()
    for item in shown:
        parts = tuple(in_parts(item, console)) if isinstance(item, Table) else (item,)
        for part in parts:
            console.print(part, *[""] * (part is not parts[-1]))


def narrow(table: Table) -> Table:
    """The look of every table: two blanks between columns, none at the edges."""
    table.box, table.padding, table.show_edge, table.pad_edge = SIMPLE_HEAD, (0, 1, 0, 0), False, False
    table.title_justify, table.title_style = "left", "bold"
    return table


def in_parts(table: Table, console: Console) -> Iterator[Table]:
    """Tables of neighbouring columns that fit the console, each with the first column again."""
    first, *waiting = table.columns
    title = table.title
    while waiting:
        taken = _fitting(table, first, waiting, console)
        part = _of(table, (first, *waiting[:taken]))
        part.title, title, waiting = title, None, waiting[taken:]
        yield part


def _fitting(table: Table, first: Column, waiting: Sequence[Column], console: Console) -> int:
    endless = console.options.update(max_width=100_000)
    for taken in range(len(waiting), 1, -1):
        if console.measure(_of(table, (first, *waiting[:taken])), options=endless).maximum <= console.width:
            return taken
    return 1


def _of(table: Table, columns: Sequence[Column]) -> Table:
    part = narrow(copy(table))
    part.columns, part.rows = [], []
    for c in columns:
        part.add_column(c.header, justify=c.justify, style=c.style, min_width=c.min_width, overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*cells)
    return part
