"""Runs the calibration and writes it down: two tables under results/ and their summary in docs/statistics.md."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from app.errors import RecordsError
from loadtest.judge.calibrate import BLOCKS, DESIGNS, SLOW_BLOCKS, Row, broken_promises, calibrate
from loadtest.judge.calibrate_power import PlannedPower, broken_plans, calibrate_power
from loadtest.judge.calibration import TABLE
from loadtest.plan import Design

POWER_TABLE = TABLE.with_name("power_calibration.csv")
DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
BEGIN = "<!-- calibration: written by `invoke calibrate-verdict` -->"
END = "<!-- end of calibration -->"
CAMPAIGNS = 10_000


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that was measured, and what of the verdict's promises it does not bear out."""

    rows: tuple[Row, ...]
    plans: tuple[PlannedPower, ...]

    @property
    def broken(self) -> list[str]:
        """One sentence for each promise not kept."""
        return broken_promises(self.rows) + broken_plans(list(self.plans))


def run(
    campaigns: int = CAMPAIGNS,
    blocks: Iterable[int] = BLOCKS,
    designs: Iterable[Design] = DESIGNS,
    tell: Callable[[str], None] = lambda line: None,
) -> Calibration:
    """Measures every row, in ten to fifteen minutes at 10,000 campaigns; `tell` hears of each design and size."""
    rows: list[Row] = []
    for row in calibrate(campaigns, blocks, designs):
        if not rows or (rows[-1].design, rows[-1].blocks) != (row.design, row.blocks):
            tell(f"{row.design}, {row.blocks} blocks: {campaigns} campaigns a row")
        rows.append(row)
    return Calibration(tuple(rows), tuple(calibrate_power(campaigns)))


def write(found: Calibration, folder: Path = TABLE.parent, document: Path = DOCUMENT) -> None:
    """Writes both tables and, from what they then hold, the summary between the document's marks."""
    write_rows(folder / TABLE.name, found.rows)
    write_rows(folder / POWER_TABLE.name, found.plans)
    text = document.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise RecordsError(f"{document} needs one line {BEGIN!r} and one {END!r} around the table")
    before, rest = text.split(BEGIN)
    document.write_text(f"{before}{BEGIN}\n{summary(read(folder))}{END}{rest.split(END)[1]}")


def read(folder: Path = TABLE.parent) -> Calibration:
    """Both tables as committed."""
    rows = tuple(Row(**values) for values in _read(folder / TABLE.name, Row))
    return Calibration(rows, tuple(PlannedPower(**values) for values in _read(folder / POWER_TABLE.name, PlannedPower)))


def write_rows(path: Path, rows: Sequence[Row | PlannedPower]) -> None:
    """Writes a table, four decimals a share."""
    names = [f.name for f in fields(rows[0])]
    with path.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_shown(getattr(row, n)) for n in names] for row in rows)


def summary(found: Calibration) -> str:
    """Both tables as markdown, one line a design and number of blocks."""
    sizes = dict.fromkeys((r.design, r.blocks) for r in found.rows)
    lines = [_line([r for r in found.rows if (r.design, r.blocks) == size]) for size in sizes]
    return "\n".join([f"Campaigns a row: {found.rows[0].campaigns}.", "", *_header(), *lines, "", *_plans(found), ""])


def _header() -> Iterator[str]:
    names = (
        "design", "blocks", "false verdicts, worst", "pointwise coverage", "simultaneous coverage",
        "withheld under two modes, least", "coverage under two modes", "-2 % found", "-7 % found (reference v1)",
        "false accept, worst", "false reject, worst", "false reject by the other rule", "equivalent everywhere",
        "two modes seen in quiet noise", "two modes seen where blocks are slow",
    )  # fmt: skip
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)


def _line(rows: list[Row]) -> str:
    quiet = {r.truth: r for r in rows if r.noise == "quiet"}
    one_mode = [r for r in rows if r.unimodal == "yes"]
    same = [r for r in one_mode if r.truth == "none"]
    two_modes = [r for r in rows if r.unimodal == "no"]
    slow_blocks = next(r for r in same if r.noise == SLOW_BLOCKS.name)
    values = (
        rows[0].design,
        str(rows[0].blocks),
        _percent(max(r.false_verdicts for r in same)),
        _range([r.coverage for r in one_mode]),
        _range([r.simultaneous_coverage for r in one_mode]),
        _percent(min(r.withheld for r in two_modes)),
        _range([r.coverage for r in two_modes]),
        _percent(quiet["-2 % everywhere"].found),
        _percent(quiet["reference v1"].found),
        _percent(max(r.false_accept for r in one_mode if r.false_accept == r.false_accept)),
        _percent(max(r.false_reject for r in one_mode if r.false_reject == r.false_reject)),
        _percent(quiet["-1 % (delta) everywhere"].false_reject_by_point),
        _percent(quiet["none"].equivalent_everywhere),
        _percent(quiet["none"].modes_flagged),
        _percent(slow_blocks.modes_flagged),
    )
    return "| " + " | ".join(values) + " |"


def _plans(found: Calibration) -> Iterator[str]:
    names = ("noise", "effect at C=96", "pilot blocks", "blocks planned (quartiles)", "power asked", "found")
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for r in found.plans:
        blocks = f"{r.blocks_low}, {r.blocks_median}, {r.blocks_high}"
        shares = f"{_percent(r.asked)} | {_percent(r.found)}"
        yield f"| {r.noise} | {r.effect_pct:+.0f} % | {r.pilot_blocks} | {blocks} | {shares} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _range(shares: list[float]) -> str:
    return f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %"


def _read(path: Path, kind: type[Row] | type[PlannedPower]) -> Iterator[dict[str, Any]]:
    casts = {"str": str, "int": int, "float": float}
    types = {f.name: casts[str(f.type)] for f in fields(kind)}
    with path.open(newline="") as source:
        for record in csv.DictReader(source):
            yield {name: cast(record[name]) for name, cast in types.items()}


def _shown(value: Any) -> Any:
    return f"{value:.4f}" if isinstance(value, float) else value
