"""Where a campaign lies on disk: runs/<id>/ with its plan, its blocks of starts, and what was made of them."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.errors import InvalidCampaignError, UsageError
from app.records import held, read_json, read_record, write_json
from loadtest.plan import Plan, Start

RUNS = Path("runs")
BLOCK_SCHEMA = MANIFEST_SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
# Of a fact that is told in an error, such as a line of flags.
LONGEST_FACT = 80


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one campaign; nothing outside `path` is named by any record, so the folder can be moved."""

    path: Path

    @property
    def resume_command(self) -> str:
        """The command line that goes on with this campaign."""
        return f"./lab compare --resume {self.path.name}"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def gate_file(self) -> Path:
        return self.path / "gate.json"

    @property
    def verdict_file(self) -> Path:
        return self.path / "verdict.json"

    @property
    def cells_file(self) -> Path:
        return self.path / "cells.csv"

    @property
    def imported(self) -> bool:
        """Whether another load driver measured it: there are cells, but no blocks, rows or proofs."""
        return self.manifest_file.is_file() and bool(self.manifest().get("imported"))

    def block(self, block: int) -> Path:
        """Folder of a block (0-based)."""
        return self.path / "blocks" / f"{block:03d}"

    def start(self, start: Start) -> Path:
        """Folder of a start inside its block."""
        return self.block(start.block) / start.name

    def block_record(self, block: int) -> dict[str, Any] | None:
        """The record that a finished block ends with; None for a block that never finished."""
        record = self.block(block) / "block.json"
        return read_record(record, BLOCK_SCHEMA) if record.is_file() else None

    def set_aside(self, block: int, why: str) -> None:
        """Moves an unfinished or void attempt out of the way, keeping it beside the block under a name of its own."""
        folder = self.block(block)
        if not folder.exists():
            return
        number = 1 + len(list(folder.parent.glob(f"{folder.name}.{why}-*")))
        shutil.move(folder, folder.with_name(f"{folder.name}.{why}-{number}"))

    @property
    def forced_file(self) -> Path:
        return self.path / "forced.json"

    def forced(self) -> tuple[dict[str, Any], ...]:
        """Promotions that were made by force against this campaign's verdict, oldest first."""
        return tuple(read_json(self.forced_file)) if self.forced_file.is_file() else ()

    def keep_forced(self, entry: dict[str, Any]) -> None:
        """Adds a promotion made by force."""
        write_json(self.forced_file, [*self.forced(), entry])

    def void_attempts(self) -> list[dict[str, Any]]:
        """Records of attempts that were void and done again, in order."""
        return [read_record(p, BLOCK_SCHEMA) for p in sorted(self.path.glob("blocks/*.void-*/block.json"))]

    def plan(self) -> Plan:
        """The plan this folder holds."""
        return Plan.from_json(read_json(self.plan_file))

    def keep_plan(self, plan: Plan) -> None:
        """Writes the plan once; InvalidCampaignError when the folder already holds another."""
        if self.plan_file.is_file() and self.plan().sha256() != plan.sha256():
            raise InvalidCampaignError(f"{self.path} holds another plan; resume with its options or choose another id")
        if not self.plan_file.is_file():
            write_json(self.plan_file, plan.to_json())

    def manifest(self) -> dict[str, Any]:
        """The campaign-level facts this folder holds."""
        return read_record(self.manifest_file, MANIFEST_SCHEMA)

    def keep_manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the campaign's manifest once; InvalidCampaignError names the fields that differ from what is there."""
        if not self.manifest_file.is_file():
            write_json(self.manifest_file, manifest)
            return
        held = self.manifest()
        # A hypothesis may be reworded between two sittings: the words it had at the start stay.
        compared = (held.keys() | manifest.keys()) - {"variants"}
        differing = [_difference(key, held.get(key), manifest.get(key)) for key in sorted(compared)]
        if told := "; ".join(filter(None, differing)):
            raise InvalidCampaignError(
                f"{self.path} was measured under another manifest: {told}; make it as it was, or begin a new campaign"
            )


def new_run(name: str | None = None, runs: Path = RUNS) -> RunFolder:
    """A folder for a new campaign, named by time unless a name is given; a name already used is refused."""
    name = name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = RunFolder(runs / _checked(name))
    if folder.plan_file.exists():
        raise UsageError(f"{folder.path} already holds a campaign; add --resume {name} to go on with it")
    return folder


def measured_now(runs: Path = RUNS) -> list[str]:
    """Names of the campaigns in the folder that a lab holds at this moment."""
    return [
        lock.parent.name for lock in sorted(runs.glob("*/.lock")) if not lock.parent.is_symlink() and held(lock.parent)
    ]


def campaign_names(runs: Path = RUNS) -> list[str]:
    """Names of all campaigns in the folder, sorted; latest among them where it leads to one."""
    return sorted(plan.parent.name for plan in runs.glob("*/plan.json"))


def open_run(name: str = "latest", runs: Path = RUNS) -> RunFolder:
    """The folder of a campaign that exists, by its id or by its path such as runs/ID."""
    name = _id(name, runs)
    folder = RunFolder((runs / _checked(name)).resolve())
    if not folder.plan_file.is_file():
        if name == "latest":
            raise UsageError(f"no campaign has ended yet in {runs}/; run ./lab demo, or name one by its id")
        raise UsageError.unknown("campaign", name, [known for known in campaign_names(runs) if known != "latest"])
    return folder


def point_latest(folder: RunFolder) -> None:
    """Makes runs/latest a link to this campaign."""
    link = folder.path.parent / "latest"
    spare = link.with_name(f".latest-{folder.path.name}")
    with contextlib.suppress(FileNotFoundError):
        spare.unlink()
    spare.symlink_to(folder.path.name)
    spare.replace(link)


def _difference(name: str, before: Any, now: Any) -> str:
    """The facts below a name that are not what they were, in words; nothing where all are."""
    if isinstance(before, dict) and isinstance(now, dict):
        below = sorted(before.keys() | now.keys())
        return "; ".join(filter(None, (_difference(f"{name}.{k}", before.get(k), now.get(k)) for k in below)))
    if before == now:
        return ""
    then, today = ("not set" if value is None else str(value) for value in (before, now))
    # Of two long lines of flags, from the word at which they part.
    same = next((at for at, (a, b) in enumerate(zip(then, today, strict=False)) if a != b), 0)
    start = then[:same].rfind(" ") + 1 if same > LONGEST_FACT else 0
    return f"{name} was {_cut(then, start)} and is {_cut(today, start)}"


def _cut(text: str, start: int) -> str:
    kept = text[start : start + LONGEST_FACT]
    return f"{'...' if start else ''}{kept}{'...' if start + LONGEST_FACT < len(text) else ''}"


def _id(name: str, runs: Path) -> str:
    # As text: a name that no file can have is refused with the others.
    folder, slash, last = name.rstrip("/").rpartition("/")
    return last if slash and Path(folder).absolute() == runs.absolute() else name


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UsageError(f"campaign id {name!r}: letters, digits, '.', '_' and '-' only, at most 80")
    return name
