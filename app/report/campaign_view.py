"""A run folder read into one value for every kind of report; a part that is missing is named, never made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from app.campaign.runs import RunFolder
from app.errors import InvalidCampaignError, RecordsError
from app.report.judged import Judged, judged_variants
from app.report.measured import Key, Measured, summarise
from app.report.outside import read_shown, shown
from loadtest.cells import Cell, read_cells
from loadtest.judge.verdict import check_verdict
from loadtest.plan import Plan, Start

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartRecord:
    """What a start left beside its rows; None for a part that is not there."""

    start: Start
    folder: Path
    proof: Mapping[str, Any] | None
    load: Mapping[str, Any] | None
    conditions: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CampaignView:
    """All that a report says of one campaign. missing names every part that could not be read and why."""

    name: str
    folder: Path
    plan: Plan
    manifest: Mapping[str, Any]
    verdict: Mapping[str, Any]
    judged: tuple[Judged, ...]
    cells: tuple[Cell, ...]
    measured: Mapping[Key, Measured]
    starts: tuple[StartRecord, ...]
    blocks: tuple[Mapping[str, Any], ...]
    redone: tuple[Mapping[str, Any], ...]
    gate: Mapping[str, Any]
    missing: tuple[str, ...]
    forced: tuple[Mapping[str, Any], ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether any figure comes from the simulated engine; unknown counts as simulated."""
        return bool(self.manifest.get("simulated", self.verdict.get("simulated", True)))

    @property
    def imported(self) -> bool:
        """Whether another load driver measured it: no rows, no proof, no conditions of our own."""
        return bool(self.manifest.get("imported", False))

    @property
    def drivers(self) -> tuple[str, ...]:
        """The load drivers whose files were imported; empty for a campaign of our own."""
        return tuple(map(str, self.manifest.get("drivers", ())))

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant that was started, controls first."""
        return self.plan.variants

    @property
    def void_blocks(self) -> Mapping[int, tuple[str, ...]]:
        """Blocks (0-based) without weight in the verdict, with the reasons."""
        return {int(b["block"]): tuple(b["reasons"]) for b in self.verdict.get("blocks_void", ())}

    def judged_variant(self, name: str) -> Judged | None:
        """The judgement of a variant; None for a control that is only measured."""
        return next((j for j in self.judged if j.variant == name), None)

    def variant_record(self, name: str) -> Mapping[str, Any]:
        """Hypothesis, prediction and status as they stood when the campaign began; empty when not recorded."""
        return dict(self.manifest.get("variants", {}).get(name, {}))


def read_campaign(folder: Path) -> CampaignView:
    """Reads a run folder; only the plan must be there (RecordsError, InvalidCampaignError)."""
    run, missing = RunFolder(folder), list[str]()
    plan = run.plan()
    manifest = _part(missing, partial(read_shown, run.manifest_file)) or {}
    verdict = _part(missing, partial(_verdict, run)) or {}
    cells = _part(missing, partial(read_cells, run.cells_file)) or []
    return CampaignView(
        name=folder.resolve().name,
        folder=folder,
        plan=plan,
        manifest=manifest,
        verdict=verdict,
        judged=_part(missing, partial(judged_variants, verdict)) or () if verdict else (),
        cells=tuple(cells),
        measured=summarise(cells, _void_arms(plan, verdict)),
        starts=tuple(_starts(run, plan, missing, bool(manifest.get("imported")))),
        blocks=_part(missing, partial(_block_records, run, plan)) or (),
        redone=tuple(shown(_part(missing, run.void_attempts) or ())),
        gate=_gate(folder, missing),
        missing=tuple(m.replace(f"{folder}/", "") for m in missing),
        forced=tuple(shown(run.forced())),
    )


def _verdict(run: RunFolder) -> dict[str, Any]:
    verdict = read_shown(run.verdict_file)
    check_verdict(verdict)
    return verdict


def _part(missing: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (RecordsError, InvalidCampaignError) as e:
        missing.append(str(e))
        return None


def _gate(folder: Path, missing: list[str]) -> Mapping[str, Any]:
    # A campaign may run without the gate; the verdict's notes say so.
    path = folder / "gate.json"
    return (_part(missing, partial(read_shown, path)) or {}) if path.exists() else {}


def _void_arms(plan: Plan, verdict: Mapping[str, Any]) -> set[tuple[str, int]]:
    """(variant, block) without weight; a control's block is void when it is void for all that it controls."""
    arms: set[tuple[str, int]] = set()
    for entry in verdict.get("blocks_void", ()):
        dropped = set(entry["variants"])
        controls = {c for c in plan.controls.values() if {v for v, of in plan.controls.items() if of == c} <= dropped}
        arms |= {(name, int(entry["block"])) for name in (dropped - set(plan.controls.values())) | controls}
    return arms


def _block_records(run: RunFolder, plan: Plan) -> tuple[Mapping[str, Any], ...]:
    return tuple(shown(r) for r in map(run.block_record, range(plan.blocks)) if r is not None)


def _starts(run: RunFolder, plan: Plan, missing: list[str], imported: bool) -> Iterator[StartRecord]:
    there = [block for block in range(plan.blocks) if run.block(block).is_dir()]
    if not imported:
        missing += [f"{run.block(block)} is not there" for block in range(plan.blocks) if block not in there]
    for start in (s for block in there for s in plan.starts(block)):
        folder = run.start(start)
        if not folder.is_dir():
            missing.append(f"{folder} is not there")
            continue
        names = ("proof.json", "load.json", "conditions.json")
        parts = [_part(missing, partial(read_shown, folder / name)) for name in names]
        yield StartRecord(start, folder, *parts)
