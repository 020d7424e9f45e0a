"""Whether the parts of a campaign's folder belong together: refused where they do not, told where they only differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from app.campaign.conditions import said_once
from app.campaign.runs import RunFolder
from app.errors import InvalidCampaignError
from app.records import read_json
from loadtest.plan import Plan, Start

# Conditions that say how fast the card may run: a change between blocks is a change of policy, not of weather.
CLOCK_POLICY = ("gpu.clocks.max.sm", "gpu.power.limit", "gpu.persistence_mode")


def check_belonging(folder: RunFolder, plan: Plan, manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed between blocks, one line a condition; a block compares its own starts, so it keeps its weight.

    InvalidCampaignError: manifest and plan of different campaigns, a start that ran another kernel file, selector or
    kind of engine than the manifest names, a finished block without the proof of a start, or a block whose starts
    were measured under different conditions.
    """
    if manifest.get("plan_sha256", plan.sha256()) != plan.sha256():
        raise InvalidCampaignError(f"{folder.path} holds the manifest of another plan; its blocks are of two campaigns")
    blocks = [block for block in range(plan.blocks) if folder.block_record(block) is not None]
    conditions = {block: _block_conditions(folder, plan, block, manifest) for block in blocks}
    return tuple(_changes(conditions))


def _block_conditions(folder: RunFolder, plan: Plan, block: int, manifest: Mapping[str, Any]) -> dict[str, str]:
    seen: dict[str, str] = {}
    for start in plan.starts(block):
        place = folder.start(start)
        # A block that stayed void may lack starts, or their last parts.
        if not (place / "proof.json").is_file() and (folder.block_record(block) or {}).get("void"):
            continue
        _check_proof(start, dict(read_json(place / "proof.json")), manifest)
        if not (place / "conditions.json").is_file():
            continue
        now = {str(k): str(v) for k, v in dict(read_json(place / "conditions.json")).items()}
        if differing := [f"{k}: {seen[k]} then {now.get(k)}" for k in seen if seen[k] != now.get(k)]:
            raise InvalidCampaignError(
                f"block {block + 1}: {start.name} was not measured under its block's conditions: {'; '.join(differing)}"
            )
        seen = now
    return seen


def _check_proof(start: Start, proof: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    named = manifest["kernels"][start.variant]
    wanted = {"kernel_sha256": named["sha256"], "selector": named["selector"], "simulated": manifest["simulated"]}
    differing = [f"{k} {proof.get(k)!r}, not {v!r}" for k, v in wanted.items() if proof.get(k) != v]
    if differing:
        raise InvalidCampaignError(
            f"block {start.block + 1}: {start.name} ran another thing than the manifest names: {'; '.join(differing)}"
        )


def _changes(conditions: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    found = {block: seen for block, seen in conditions.items() if seen}
    for key in sorted({k for seen in found.values() for k in seen}):
        runs = [(value, [b + 1 for b, _ in group]) for value, group in _runs(found, key)]
        if len(runs) > 1:
            what = "GPU clock policy changed" if key in CLOCK_POLICY else "conditions changed"
            values = ", then ".join(f"{value} (block {_span(blocks)})" for value, blocks in runs)
            yield f"{what} between blocks: {key} was {values}"


def _runs(found: Mapping[int, Mapping[str, str]], key: str) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
    said = ((b, said_once(seen.get(key, "not recorded"))) for b, seen in sorted(found.items()))
    return groupby(said, key=lambda pair: pair[1])


def _span(blocks: list[int]) -> str:
    return str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
