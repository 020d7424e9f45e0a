"""What a sitting leaves for another machine: the rows of each block, and the state that going on needs."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from app.campaign.blocks import unsettled
from app.campaign.runs import RUNS
from app.errors import UsageError
from app.records import read_json, write_json
from loadtest.whole import whole

ROWS = "rows.parquet"
# In a campaign's folder: blocks whose rows an archive holds, for the sitting after one that was killed in between.
ARCHIVED = "archived.json"
_PIECE_BYTES = 1024 * 1024


def finished_blocks(folders: list[Path]) -> Iterator[Path]:
    """Folders of blocks whose record is their last word; one that stayed void after all attempts is among them."""
    for folder in folders:
        for record in sorted(folder.glob("blocks/[0-9][0-9][0-9]/block.json")):
            if unsettled(read_json(record)) is None:
                yield record.parent


def keep_rows(folder: Path, out: Path, broken: bool = False) -> None:
    """Archives the rows of a campaign's finished blocks that no archive holds yet.

    broken: a fault ended it, and what it has of unfinished blocks and void attempts is looked at too.
    """
    finished = {block.name for block in finished_blocks([folder])}
    done = set(read_json(folder / ARCHIVED)) if (folder / ARCHIVED).is_file() else set[str]()
    for block in _with_rows(folder):
        if block.name in done or not (broken or block.name in finished):
            continue
        # It is finished in a later sitting, under the name that it has now.
        unfinished = block.name.isdigit() and block.name not in finished
        name = f"{folder.name}-{block.name}{'.unfinished' if unfinished else ''}.tar.gz"
        pack(out / name, folder.parent, sorted(block.rglob("*")))
        if not unfinished:
            done.add(block.name)
            write_json(folder / ARCHIVED, sorted(done))


def state_files(folders: list[Path]) -> Iterator[Path]:
    """What a campaign needs to go on elsewhere and to be judged: all but raw rows, caches and packages."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder).parts
            if path.is_file() and path.name not in (ROWS, ".lock") and inside[0] != "engine":
                yield path


def pack(archive: Path, root: Path, files: list[Path]) -> None:
    """A tar file, whole or not at all, of files by their path under root; UnwrittenError where it cannot be written."""
    with whole(archive) as out, tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
        for path in files:
            tar.add(path, path.relative_to(root), recursive=False)


def restore(archive: Path, runs: Path = RUNS) -> None:
    """Unpacks an earlier sitting's state, whole or not at all.

    UsageError when it is damaged or cannot be read, or when a campaign of it is here already.
    """
    try:
        _read_to_the_end(archive)
        _unpack(archive, runs)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as e:
        raise UsageError(f"--state {archive} could not be unpacked ({e}); name the state.tar.gz of a sitting") from e


def _read_to_the_end(archive: Path) -> None:
    # The sum over all bytes stands behind them, and tarfile takes damage in the middle for the archive's end.
    with gzip.open(archive) as data:
        while data.read(_PIECE_BYTES):
            pass


def _unpack(archive: Path, runs: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    # What is killed in between leaves a folder that is no campaign's.
    with tempfile.TemporaryDirectory(dir=runs, prefix=".restored-") as apart, ExitStack() as undone:
        with tarfile.open(archive) as tar:
            tar.extractall(apart, filter="data")
        folders = sorted(Path(apart).iterdir())
        if here := [folder.name for folder in folders if (runs / folder.name).exists()]:
            raise UsageError(f"{', '.join(here)} is in {runs} already; move it away or leave --state out")
        for folder in folders:
            folder.rename(runs / folder.name)
            undone.callback((runs / folder.name).rename, folder)
        undone.pop_all()


def _with_rows(folder: Path) -> list[Path]:
    return sorted({rows.parents[1] for rows in folder.glob(f"blocks/*/*/{ROWS}")})
