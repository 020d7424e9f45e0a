"""One measured cell, a start at one concurrency: what windows produce and the verdict judges."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from app.errors import RecordsError
from loadtest.plan import Start
from loadtest.whole import whole


@dataclass(frozen=True, slots=True)
class Cell:
    """Figures of one start at one concurrency; rates and durations are in engine time (simulated when the engine is).

    tokens_per_s: output tokens that arrived inside the steady window over all streams / window length.
    ttft, tpot and itl are medians and tails over the window's requests; NaN where undefined.
    decode_batch: mean of the server's running requests over the window; NaN when it was not read.
    reasons: why the cell is void; empty when it is valid. block, start: counted from 0.
    goodput_per_s: requests a second that met the plan's objectives; NaN without objectives.
    """

    block: int
    start: int
    variant: str
    concurrency: int
    tokens_per_s: float
    window_s: float
    tokens: int
    requests: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    e2e_p50_ms: float
    decode_batch: float
    failures: int
    short_outputs: int
    reasons: tuple[str, ...] = ()
    goodput_per_s: float = math.nan

    @property
    def valid(self) -> bool:
        """Whether the cell may be judged."""
        return not self.reasons


def void_cells(start: Start, reasons: Iterable[str]) -> list[Cell]:
    """What stands for a start that could not be measured: one void cell a concurrency, every figure undefined."""
    nan = math.nan
    why = tuple(reasons) or ("not measured",)
    return [
        Cell(start.block, start.index, start.variant, c, nan, nan, 0, 0, nan, nan, nan, nan, nan, nan, nan, 0, 0, why)
        for c in start.concurrencies
    ]


def write_cells(path: Path, cells: Iterable[Cell]) -> None:
    """Writes cells.csv; `read_cells` restores it exactly."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Cell)])
    writer.writeheader()
    writer.writerows(asdict(c) | {"reasons": "; ".join(c.reasons)} for c in cells)
    with whole(path) as out:
        out.write(text.getvalue().encode())


def read_cells(path: Path) -> list[Cell]:
    """Reads cells.csv; RecordsError names the line that cannot be read, a torn last one too."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
    except OSError as e:
        raise RecordsError(f"{path} could not be read: {e.strerror}") from e
    except (UnicodeDecodeError, csv.Error) as e:
        raise RecordsError(f"{path}: not a table of cells ({e}); run the block again") from e
    cells = [_cell(path, number, row) for number, row in enumerate(rows, start=2)]
    if not text.endswith("\n"):
        raise RecordsError(f"{path}:{len(cells) + 1}: not a cell (the line is torn); run the block again")
    return cells


def _cell(path: Path, number: int, row: dict[str, str]) -> Cell:
    casts: dict[str, Any] = {"int": int, "float": float, "str": str}
    try:
        # Campaigns from before goodput have no such column.
        row.setdefault("goodput_per_s", "nan")
        values = {f.name: casts[str(f.type)](row[f.name]) for f in fields(Cell) if f.name != "reasons"}
        return Cell(**values, reasons=tuple(r for r in row["reasons"].split("; ") if r))
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RecordsError(f"{path}:{number}: not a cell ({e}); run the block again") from e
