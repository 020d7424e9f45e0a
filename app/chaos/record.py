"""The table of faults: one line a kind, as CSV and as the block between two marks of docs/faults.md."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from app.environment import ROOT
from app.errors import RecordsError
from app.records import write_text

PAGE = ROOT / "docs" / "faults.md"
BAR = "\\|"
BEGIN, END = "<!-- begin faults -->", "<!-- end faults -->"


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one kind of fault. lost: finished blocks gone or changed, or half ones counted; leaked: processes.

    seconds: the longest until the lab answered, or its children were gone, or, of a load, what it took. skipped: why
    it was not tried here. note: what was seen, in a few words. made: day and form.
    """

    kind: str
    tried: int = 0
    survived: int = 0
    lost: int = 0
    leaked: int = 0
    seconds: float = 0.0
    skipped: str = ""
    note: str = ""
    made: str = ""

    @property
    def sound(self) -> bool:
        """Whether every trial was survived with nothing lost and nothing left over; a skipped kind says nothing."""
        return self.survived == self.tried and not self.lost and not self.leaked

    def and_also(self, other: Tried) -> Tried:
        """Both together, under this kind."""
        notes = [n for n in dict.fromkeys((self.note, other.note)) if n]
        return Tried(
            self.kind,
            self.tried + other.tried,
            self.survived + other.survived,
            self.lost + other.lost,
            self.leaked + other.leaked,
            max(self.seconds, other.seconds),
            self.skipped or other.skipped,
            "; ".join(notes),
            self.made or other.made,
        )


def together(trials: Iterable[Tried]) -> list[Tried]:
    """One line a kind, in the order of first appearance."""
    found: dict[str, Tried] = {}
    for one in trials:
        found[one.kind] = found[one.kind].and_also(one) if one.kind in found else one
    return list(found.values())


def table_csv(rows: Sequence[Tried]) -> str:
    """The table as CSV, a header first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(f.name for f in fields(Tried))
    writer.writerows((*astuple(r)[:5], f"{r.seconds:.1f}", r.skipped, r.note, r.made) for r in rows)
    return out.getvalue()


def read_table(path: Path) -> list[Tried]:
    """The rows of a CSV that was written before; none where there is no file, RecordsError where it cannot be read."""
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as source:
            return [_row(line) for line in csv.DictReader(source)]
    except (KeyError, TypeError, ValueError) as e:
        raise RecordsError(f"{path} is no table of faults ({e!r}); remove it or choose another --out") from e


def merged(old: Sequence[Tried], new: Sequence[Tried]) -> list[Tried]:
    """New rows in place of old ones of their kind; a kind that was skipped now does not erase what was seen before."""
    found = {r.kind: r for r in old} | {r.kind: r for r in new if r.tried or r.kind not in {o.kind for o in old}}
    return list(found.values())


def table_markdown(rows: Sequence[Tried], head: str) -> str:
    """The table for a page, under a line that says where and how it was made."""
    lines = [head, "", "| fault | tried | survived | lost blocks | leaked | seconds | what was seen | made by |"]
    lines += ["|---|--:|--:|--:|--:|--:|---|---|"]
    for r in rows:
        seen = f"not tried: {r.skipped}" if r.skipped and not r.tried else "; ".join(filter(None, (r.note, r.skipped)))
        figures = (r.kind, r.tried, r.survived, r.lost, r.leaked, f"{r.seconds:.1f}", seen, r.made)
        lines.append(f"| {' | '.join(str(f).replace('|', BAR) for f in figures)} |")
    return "\n".join(lines)


def write_page(markdown: str, page: Path = PAGE) -> None:
    """Puts the table between the page's marks; RecordsError when it has none."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise RecordsError(f"{page} lacks the marks {BEGIN} and {END}; put them where the table belongs")
    before, rest = text.split(BEGIN, 1)
    write_text(page, f"{before}{BEGIN}\n{markdown}\n{END}{rest.split(END, 1)[1]}")


def _row(line: dict[str, str]) -> Tried:
    counts = {name: int(line[name]) for name in ("tried", "survived", "lost", "leaked")}
    words = {name: line[name] for name in ("kind", "skipped", "note", "made")}
    return Tried(**words, **counts, seconds=float(line["seconds"]))  # type: ignore[arg-type]
