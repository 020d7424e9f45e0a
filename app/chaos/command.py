"""What `invoke chaos` does: puts the lab through every kind of fault, prints the table and keeps it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from app.campaign.runs import RunFolder
from app.chaos import faults
from app.chaos.clock import python_under
from app.chaos.containers import containers_tried
from app.chaos.disk import small_disk
from app.chaos.killed_lab import killed_lab
from app.chaos.record import PAGE, Tried, merged, read_table, table_csv, table_markdown, together, write_page
from app.chaos.stage import Fault
from app.chaos.streams import streams_held
from app.chaos.trial import Trial, undisturbed
from app.environment import ROOT
from app.errors import NotReadyError, UsageError
from app.progress import Progress
from app.records import write_text

TABLE = ROOT / "docs" / "results" / "faults.csv"
ALL = "all"
SEED = 7
DAY_S = 86_400.0
STARTS_A_BLOCK = 2
SOAK_SLOPE_MB_PER_MIN = 1.0
Group = Callable[[bool, Path], Iterator[Tried]]


def run_chaos(long: bool, only: str, out: str) -> bool:
    """Whether everything that was tried was survived, with nothing lost and nothing left running.

    only: kinds to try, by name; ALL for all but the soak, which the long form adds. out: the CSV; the table kept
    with the documentation, and its page, when empty.
    """
    names = _names(only, long)
    table, sound = Path(out) if out else TABLE, True
    with tempfile.TemporaryDirectory(prefix="decode-ab-chaos-") as folder:
        for name in names:
            options = f"--long --only {name}" if long else f"--only {name}"
            sound &= _try_kind(GROUPS[name](long, Path(folder) / name), options, table, page=not out)
    return sound


def _try_kind(trials: Iterator[Tried], options: str, table: Path, page: bool) -> bool:
    tried: list[Tried] = []
    try:
        for told in trials:
            tried.append(told)
    finally:
        # Hours of trials are not lost with the one that comes to grief, or that somebody has no more time for.
        rows = [replace(row, made=f"{options}; {_conditions()}") for row in together(tried)]
        _keep(rows, table, page)
        print(*map(_line, rows), sep="\n", flush=True)
    return all(row.sound for row in rows)


def kills(long: bool, folder: Path) -> Iterator[Tried]:
    """Services and the load driver killed in each phase."""
    yield from _trial(folder, faults.kills(long))


def network(long: bool, folder: Path) -> Iterator[Tried]:
    """Bad weather between load and router."""
    yield from _trial(folder, faults.weathers(long), weathered=True)


def services(long: bool, folder: Path) -> Iterator[Tried]:
    """Services that are there and wrong: another model, or halted."""
    found = [faults.wrong_model(), faults.halted("router"), *([faults.halted("decode")] if long else [])]
    yield from _trial(folder, found)


def descriptors(long: bool, folder: Path) -> Iterator[Tried]:
    """Processes that may open nothing more."""
    victims = ("lab", "router", "decode", "driver") if long else ("lab", "router")
    yield from _trial(folder, [faults.out_of_descriptors(victim) for victim in victims])


def disk(long: bool, folder: Path) -> Iterator[Tried]:
    """A file system filled to the last byte."""
    try:
        with small_disk(folder) as small:
            yield from _trial(small / "run", [faults.disk_full(small)])
    except NotReadyError as e:
        yield Tried("disk full", skipped=str(e))


def clock(long: bool, folder: Path) -> Iterator[Tried]:
    """A wall clock that jumps by a day."""
    for step_s in (DAY_S, -DAY_S) if long else (-DAY_S,):
        run = RunFolder(folder / f"{step_s:+.0f}")
        yield undisturbed(run, SEED, step_s, python_under(step_s, 2.0), _progress(0))


def lab(long: bool, folder: Path) -> Iterator[Tried]:
    """The lab itself killed at random instants."""
    folder.mkdir(parents=True)
    yield from killed_lab(50 if long else 5, folder, SEED)


def load(long: bool, folder: Path) -> Iterator[Tried]:
    """Many streams at once."""
    streams, seconds = (2000, 600.0) if long else (300, 60.0)
    yield streams_held(f"{streams} streams of 5 tok/s for {seconds:.0f} s", streams, seconds, folder)


def soak(long: bool, folder: Path) -> Iterator[Tried]:
    """A load for long, with the driver's memory watched."""
    seconds = 3600.0 if long else 180.0
    yield streams_held(f"soak of {seconds / 60:.0f} min, 100 streams", 100, seconds, folder, SOAK_SLOPE_MB_PER_MIN)


def containers(long: bool, folder: Path) -> Iterator[Tried]:
    """Containers killed in each phase, the lab killed while they run, the Engine stopped."""
    folder.mkdir(parents=True)
    yield from containers_tried(long, folder, SEED)


GROUPS: Mapping[str, Group] = {
    "kills": kills, "network": network, "services": services, "descriptors": descriptors, "disk": disk,
    "clock": clock, "lab": lab, "load": load, "soak": soak, "containers": containers,
}  # fmt: skip


def _trial(folder: Path, chosen: Sequence[Fault], weathered: bool = False) -> Iterator[Tried]:
    yield from Trial(RunFolder(folder), chosen, SEED, weathered).run(_progress(len(chosen)))


def _conditions() -> str:
    """Day, processors, and how many processes wanted one in the last quarter of an hour."""
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {os.getloadavg()[2]:.0f}"


def _progress(faults: int) -> Progress:
    return Progress(STARTS_A_BLOCK * max(2, faults + 1), quiet=True)


def _names(only: str, long: bool) -> list[str]:
    if only == ALL:
        return [name for name in GROUPS if name != "soak" or long]
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in GROUPS]:
        raise UsageError.unknown("kind of fault", unknown[0], [ALL, *GROUPS])
    return names


def _line(row: Tried) -> str:
    if row.skipped and not row.tried:
        return f"{row.kind}: not tried, {row.skipped}"
    counts = f"{row.survived} of {row.tried} survived, {row.lost} lost, {row.leaked} leaked, {row.seconds:.1f} s"
    return f"{row.kind}: {counts}" + (f" ({row.note})" if row.note else "")


def _keep(rows: Sequence[Tried], out: Path, page: bool) -> None:
    kept = merged(read_table(out), rows)
    write_text(out, table_csv(kept))
    if page:
        head = f"SIMULATED engines behind the real router, on {platform.machine()}; `invoke chaos` writes this table."
        write_page(table_markdown(kept, head), PAGE)
