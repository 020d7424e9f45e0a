"""The table of an import, import.csv: which file measured which start of which variant."""

from __future__ import annotations

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from app.errors import RecordsError, UsageError, printable
from loadtest.importing.foreign import LIMIT_BYTES

TABLE = "import.csv"
COLUMNS = ("block", "start", "variant", "file")
MAX_ROWS = 100_000
# Of a name that is told in an error, which says more than that.
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Row:
    """A file and the start it measured; line counts from 1, the head's."""

    line: int
    block: int
    start: int
    variant: str
    file: str
    path: Path


def named_variants(folder: Path) -> tuple[str, ...]:
    """The variants that import.csv names, in its order; RecordsError when it cannot be read."""
    return tuple(dict.fromkeys(line["variant"] for line in _lines(folder / TABLE) if line["variant"]))


def read_table(folder: Path, controls: Mapping[str, str]) -> list[Row]:
    """The rows of what is judged and of its controls; the others are left unread.

    UsageError names variants without rows and rows of the same bytes; RecordsError says what is no table.
    """
    lines = list(enumerate(_lines(folder / TABLE), start=2))
    _check_variants({line["variant"] for _, line in lines}, controls)
    judged = {*controls, *controls.values()}
    rows = [_row(folder, n, line) for n, line in lines if not line["variant"] or line["variant"] in judged]
    _check_measured_apart(folder, rows)
    return rows


def _lines(table: Path) -> list[dict[str, str]]:
    folder = table.parent
    told, remedy = printable(str(folder), LONGEST_NAME), f"give the folder that holds {TABLE} and the results it names"
    try:
        exists, is_folder, has_table = folder.exists(), folder.is_dir(), table.is_file()
    except OSError as e:
        raise UsageError(f"{told} cannot be looked at ({e.strerror}); {remedy}") from e
    if not is_folder:
        raise UsageError(f"{told} {'is no folder' if exists else 'does not exist'}; {remedy}")
    if not has_table:
        raise RecordsError(
            f"{table} is missing: a load driver's results do not say which block and start they measured; "
            f"write it with the columns {', '.join(COLUMNS)}"
        )
    try:
        with table.open(newline="", encoding="utf-8") as source:
            lines = list(islice(csv.DictReader(source), MAX_ROWS + 1))
    except (OSError, ValueError, csv.Error) as e:
        raise RecordsError(f"{table} could not be read ({e}); write it as comma-separated UTF-8") from e
    if len(lines) > MAX_ROWS:
        raise RecordsError(f"{table} has more than {MAX_ROWS} rows")
    if not lines or any(set(COLUMNS) - set(line) for line in lines):
        raise RecordsError(f"{table} needs the columns {', '.join(COLUMNS)} and a row a file")
    return lines


def _row(folder: Path, number: int, line: Mapping[str, str]) -> Row:
    where = f"{folder / TABLE}:{number}"
    try:
        block, start = int(line["block"]), int(line["start"])
    except (TypeError, ValueError) as e:
        raise RecordsError(f"{where}: block and start are numbers from 0 ({e})") from e
    if not line["variant"] or not line["file"] or "\0" in line["file"]:
        raise RecordsError(f"{where}: variant and file are needed")
    return Row(number, block, start, line["variant"], line["file"], _path(folder, where, line["file"]))


def _path(folder: Path, where: str, file: str) -> Path:
    path, told = folder / file, printable(file, LONGEST_NAME)
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        # What is missing is told where it is read; what cannot even be asked about, here.
        path.is_file()
    # RuntimeError: a link that leads to itself.
    except (OSError, RuntimeError) as e:
        why = e.strerror if isinstance(e, OSError) else e
        raise RecordsError(f"{where}: {told} cannot be looked at ({why}); correct the file column") from e
    # The table may come with the results it names; it has no say about other files of this host.
    if not inside:
        raise RecordsError(f"{where}: {told} leads out of {folder}; put the file there")
    return path


def _check_variants(found: set[str], controls: Mapping[str, str]) -> None:
    for variant, control in controls.items():
        for name, word in ((variant, ""), (control, f", the control of {variant}")):
            if name not in found:
                named = ", ".join(sorted(filter(None, found))) or "no variant"
                raise UsageError(
                    f"{TABLE} has no rows of {name}{word}; it names {named}: add them, or narrow what is judged with "
                    "--variants"
                )


def _check_measured_apart(folder: Path, rows: Iterable[Row]) -> None:
    """Refuses a file that stands for two rows, be it a copy: even a variant and its twin are started one by one."""
    seen: dict[str, Row] = {}
    for row in _of_a_size(rows):
        digest = _digest(folder, row)
        if (first := seen.setdefault(digest, row)) is not row:
            raise UsageError(
                f"{folder / TABLE}:{row.line}: {row.file} of {row.variant} holds, byte for byte, {first.file} of "
                f"{first.variant} in line {first.line}; give each row the results that its own start measured"
            )


def _digest(folder: Path, row: Row) -> str:
    try:
        with row.path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as e:
        raise RecordsError(
            f"{folder / TABLE}:{row.line}: {row.file} could not be read ({e.strerror}); see that this user may read it"
        ) from e


def _of_a_size(rows: Iterable[Row]) -> Sequence[Row]:
    """Rows whose files are as large as another's, in their order: only these can be the same."""
    by_size = defaultdict[int, list[Row]](list)
    for row in rows:
        # One that is missing or too large is told where it is read.
        if row.path.is_file() and (size := row.path.stat().st_size) <= LIMIT_BYTES:
            by_size[size].append(row)
    return sorted((r for same in by_size.values() if len(same) > 1 for r in same), key=lambda r: r.line)
