"""Runs a plan: blocks of starts, each start proved before it is loaded, each block kept whole or done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.campaign.conditions import conditions
from app.campaign.lasting import lasting_reasons, remedy, too_short_answers
from app.campaign.load import run_load, write_order
from app.campaign.runs import BLOCK_SCHEMA, MANIFEST_SCHEMA, RunFolder
from app.engine import Endpoints
from app.engine.inspection import Inspection
from app.engine.probe import send_canary
from app.engine.proof import Proof, check_proof
from app.errors import InvalidCampaignError, LoadError, NotReadyError, RecordsError
from app.kernel.placed import PlacedKernel
from app.progress import Progress
from app.records import read_json, write_json
from app.stack import InspectableStack, Stack
from app.stack.watch import Watch
from loadtest.cells import Cell, read_cells, void_cells
from loadtest.measure.reconcile import LATE, NOT_ALONE, SATURATED
from loadtest.plan import Plan, Start

MAX_ATTEMPTS = 3

Load = Callable[[Path, Plan, Start, Watch], list[Cell]]


@dataclass(frozen=True, slots=True)
class Campaign:
    """A plan with what it needs to run: the stack, each variant's placed kernel, and the folder that keeps the rows.

    variants records hypothesis, prediction and status as they stood when the campaign began. pause is asked before each
    block and ends the sitting when true; the campaign goes on in another. ended is called when a block has ended, void
    or not. advice is said after a block that a busy
    machine voided.
    """

    plan: Plan
    kernels: Mapping[str, PlacedKernel]
    folder: RunFolder
    stack: Stack
    progress: Progress
    variants: Mapping[str, Any] = field(default_factory=dict)
    load: Load = run_load
    pause: Callable[[], bool] = lambda: False
    ended: Callable[[], None] = lambda: None
    advice: str = ""

    def manifest(self) -> dict[str, Any]:
        """Campaign-level facts; a folder measured under another manifest is never continued."""
        return {
            "schema": MANIFEST_SCHEMA,
            "plan_sha256": self.plan.sha256(),
            "simulated": self.stack.simulated,
            "stack": self.stack.manifest(),
            "variants": dict(self.variants),
            "kernels": {
                name: {"sha256": k.sha256, "base_sha256": k.base_sha256, "selector": k.selector}
                for name, k in sorted(self.kernels.items())
            },
        }


def run(campaign: Campaign) -> list[Cell]:
    """Measures every block that is not finished yet and returns the cells of all that are.

    A block that a service, the load or the records spoiled is set aside and done again, at most twice; ProofError and
    NotReadyError at the first start end the campaign, and so does InvalidCampaignError after two blocks in a row that
    all attempts left void for one reason, or at once where answers are too short for windows of decode alone. What was
    finished stays, whatever happens. The caller owns the folder.
    """
    folder = campaign.folder
    folder.keep_plan(campaign.plan)
    folder.keep_manifest(campaign.manifest())
    before: Mapping[str, str] = {}
    try:
        for block in range(campaign.plan.blocks):
            if (why := unsettled(folder.block_record(block))) is not None:
                if campaign.pause():
                    break
                folder.set_aside(block, why)
                _measure_block(campaign, block)
                campaign.ended()
                before = _lasting(campaign, block, before)
    finally:
        campaign.stack.down()
    return list(finished_cells(folder, campaign.plan))


def finished_cells(folder: RunFolder, plan: Plan) -> Iterator[Cell]:
    """Cells of finished blocks only, in plan order; a half-measured block counts for nothing.

    A start that a block which stayed void never measured gives void cells with the block's reasons. An import has its
    cells alone, and every block of it is finished.
    """
    if folder.imported:
        yield from read_cells(folder.cells_file)
        return
    for block in range(plan.blocks):
        if (record := folder.block_record(block)) is not None:
            for start in plan.starts(block):
                path = folder.start(start) / "cells.csv"
                yield from read_cells(path) if path.is_file() else void_cells(start, record["void"])


def unsettled(record: Mapping[str, Any] | None) -> str | None:
    """Why a block with this record is still to be measured; None when the record is its last word."""
    # A lab that was killed between a void attempt and the next leaves a record that is not the block's last word.
    if record is None:
        return "unfinished"
    return "void" if record["void"] and record["attempt"] < MAX_ATTEMPTS else None


def _lasting(campaign: Campaign, block: int, before: Mapping[str, str]) -> Mapping[str, str]:
    """What the block stays void for; InvalidCampaignError when the block measured before it did for the same."""
    folder = campaign.folder
    if unsettled(folder.block_record(block)) is not None:
        return {}
    found = lasting_reasons(folder, block)
    if shared := [found[kind] for kind in sorted(found.keys() & before.keys())]:
        why = f"two blocks in a row stay void for one reason in all {MAX_ATTEMPTS} attempts ({shared[0]})"
        raise _hopeless(why, remedy(shared, campaign.plan, _kept_cells(campaign, block)), folder)
    return found


def _hopeless(why: str, mend: str, folder: RunFolder) -> InvalidCampaignError:
    # Every option that mends is fixed by the plan, so that going on would meet the same.
    then = (
        f"Begin a new campaign, the plan of this one is fixed: {mend}"
        if mend
        else f"docs/load.md says what each reason means; once mended, measure on with `{folder.resume_command}`"
    )
    return InvalidCampaignError(f"{why}, so the rest is not measured. {then}")


def _kept_cells(campaign: Campaign, block: int) -> list[Cell]:
    paths = (campaign.folder.start(start) / "cells.csv" for start in campaign.plan.starts(block))
    return [cell for path in paths if path.is_file() for cell in read_cells(path)]


def _measure_block(campaign: Campaign, block: int) -> None:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        reasons = _attempt(campaign, block)
        last = attempt == MAX_ATTEMPTS
        record = {"schema": BLOCK_SCHEMA, "block": block, "attempt": attempt, "void": reasons, "finished_at": _now()}
        write_json(campaign.folder.block(block) / "block.json", record)
        if not reasons:
            return
        cells = _kept_cells(campaign, block)
        mend = remedy(reasons, campaign.plan, cells)
        if mend and too_short_answers(cells):
            why = next(reason for reason in reasons if NOT_ALONE in reason)
            raise _hopeless(f"block {block + 1} is void, and would be again ({why})", mend, campaign.folder)
        then = f"it stays so after {attempt} attempts" if last else "doing it again"
        campaign.progress.say(f"block {block + 1} is void ({'; '.join(reasons[:2])}); {then}")
        if attempt == 1 and mend:
            campaign.progress.say(f"should it stay so: {mend}")
        if campaign.advice and any(LATE in reason or SATURATED in reason for reason in reasons):
            campaign.progress.say(campaign.advice)
        # A void record that is not the last word is taken up by whoever resumes.
        if last or campaign.pause():
            return
        campaign.folder.set_aside(block, "void")


def _attempt(campaign: Campaign, block: int) -> list[str]:
    """Measures every start of a block once; returns why the block is void, nothing when it is sound."""
    seen: list[dict[str, Any]] = []
    reasons: list[str] = []
    for start in campaign.plan.starts(block):
        try:
            cells = _measure_start(campaign, start, seen)
        except (LoadError, NotReadyError) as e:
            if isinstance(e, RecordsError) or _never_ran(campaign, start):
                raise
            campaign.stack.down()
            return [f"{start.name}: {e}"]
        reasons += [f"{start.name} C={c.concurrency}: {r}" for c in cells for r in c.reasons]
    return reasons


def _never_ran(campaign: Campaign, start: Start) -> bool:
    return start.block == 0 and start.index == 0 and not campaign.folder.void_attempts()


def _measure_start(campaign: Campaign, start: Start, seen: list[dict[str, Any]]) -> list[Cell]:
    plan, kernel = campaign.plan, campaign.kernels[start.variant]
    done = start.block * len(plan.starts(start.block)) + start.index
    campaign.progress.step(f"block {start.block + 1}/{plan.blocks}  {start.variant}  starting", done=done)
    folder = campaign.folder.start(start)
    endpoints = campaign.stack.switch(kernel, f"block-{start.block:03d}/{start.name}")
    watch = Watch(campaign.stack, "")
    canary = watch.over(lambda: send_canary(endpoints), "at the canary")
    proof = check_proof(watch.over(lambda: campaign.stack.proof(endpoints), "at the proof"), kernel)
    _check_equal(start, seen, proof)
    proved = {"canary_s": round(canary.seconds, 4)}
    write_json(folder / "proof.json", proof.to_json() | proved)
    write_json(folder / "conditions.json", conditions())
    levels = ",".join(str(c) for c in start.concurrencies)
    campaign.progress.step(f"block {start.block + 1}/{plan.blocks}  {start.variant}  C={levels}", done=done)
    cells = _loaded(campaign, start, endpoints)
    if not any(c.reasons for c in cells) and (found := _inspected(campaign, start, endpoints)):
        shown = replace(proof, evidence={**proof.evidence, "after_load": found})
        write_json(folder / "proof.json", shown.to_json() | proved)
    campaign.progress.step(f"block {start.block + 1}/{plan.blocks}  {start.variant}  measured", done=done + 1)
    return cells


def _loaded(campaign: Campaign, start: Start, endpoints: Endpoints) -> list[Cell]:
    folder = campaign.folder.start(start)
    order = write_order(campaign.plan, start, endpoints, folder, campaign.stack.simulated)
    watch = Watch(campaign.stack, endpoints.router_url if endpoints.routed else "", ready=endpoints.router_ready)
    cells = campaign.load(order, campaign.plan, start, watch)
    if fault := watch.ended():
        raise NotReadyError(fault)
    return cells


def _inspected(campaign: Campaign, start: Start, endpoints: Endpoints) -> dict[str, Any]:
    """What the stack shows of a variant after the load of its first start in the first block that counts."""
    stack, plan, folder = campaign.stack, campaign.plan, campaign.folder
    if stack.simulated or not isinstance(stack, InspectableStack) or _was_inspected(campaign, start):
        return {}
    campaign.progress.say(f"{start.variant}: looking at attention's outputs and the profiler's trace")
    most, kept = max(start.concurrencies), folder.start(start)
    return stack.inspect(endpoints, Inspection(start.variant, plan.controls, most, plan.lengths, kept))


def _was_inspected(campaign: Campaign, start: Start) -> bool:
    for block in range(start.block + 1):
        record = campaign.folder.block_record(block)
        if block < start.block and (record is None or record["void"]):
            continue
        for earlier in campaign.plan.starts(block):
            file = campaign.folder.start(earlier) / "proof.json"
            if earlier.variant == start.variant and file.is_file() and "after_load" in read_json(file)["evidence"]:
                return True
    return False


def _check_equal(start: Start, seen: list[dict[str, Any]], proof: Proof) -> None:
    """Refuses a block whose starts differ in anything but the variant."""
    now = conditions() | {f"served.{k}": str(v) for k, v in proof.conditions.items()}
    seen.append(now)
    differing = [
        f"{k}: {seen[0].get(k)} then {now.get(k)}" for k in seen[0].keys() | now.keys() if seen[0].get(k) != now.get(k)
    ]
    if differing:
        raise InvalidCampaignError(
            f"{start.name} was not measured under its block's conditions: {'; '.join(differing)}"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
