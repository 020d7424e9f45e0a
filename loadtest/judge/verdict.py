"""The verdict on a campaign: a pure function of its plan, its cells and what gate and proof established."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jsonschema

from app.errors import InvalidCampaignError
from loadtest.cells import Cell
from loadtest.judge import calibration
from loadtest.judge.contrast import CellTable, Contrast
from loadtest.judge.coverage import short_windows
from loadtest.judge.facts import MIN_BLOCKS, Facts, VariantFacts
from loadtest.judge.interaction import Estimate, Interaction, interaction, overall
from loadtest.judge.levels import Level, Secondary, judge_levels, secondary, unjudged_levels
from loadtest.plan import Plan

SCHEMA = 1
SCHEMA_FILE = Path(__file__).parent / "schema" / "verdict.schema.json"
DIGITS = 6
Decision = Literal["accept", "reject", "undecided", "invalid", "same-code"]


@dataclass(frozen=True, slots=True)
class VariantVerdict:
    """Decision on one variant; blocks are those used, differences in levels stand in their order."""

    variant: str
    control: str
    decision: Decision
    reason: str
    stamps: tuple[str, ...]
    blocks: tuple[int, ...]
    levels: tuple[Level, ...]
    overall: Estimate | None
    interaction: Interaction | None
    secondary: tuple[Secondary, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """All that a report prints of a judged campaign; headline comes first in every form of it.

    Fields number blocks and starts from 0, words from 1.
    """

    schema: int
    campaign: str
    plan_sha256: str
    simulated: bool
    time_scale: float
    alpha: float
    delta: float
    design: str
    interim: bool
    headline: tuple[str, ...]
    blocks_planned: int
    blocks_used: int
    blocks_void: tuple[dict[str, Any], ...]
    variants: tuple[VariantVerdict, ...]
    calibration: dict[str, Any]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data that conforms to verdict.schema.json; numbers of 6 decimals or digits, NaN as null."""
        data: dict[str, Any] = _plain(asdict(self))
        return data

    def text(self) -> str:
        """The bytes of verdict.json: the same for the same campaign."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n"


def judge(plan: Plan, cells: Iterable[Cell], facts: Facts) -> Verdict:
    """Judges every variant of the plan against its control; InvalidCampaignError when the cells are not the plan's."""
    cells = [*cells]
    table = CellTable(plan, cells)
    contrasts = [table.contrast(v) for v in plan.controls]
    interim = any(c.unmeasured for c in contrasts)
    verdicts = tuple(_judge_variant(plan, table, c, facts) for c in contrasts)
    void = _void_blocks(contrasts)
    cited = calibration.read_table()
    rows = {v.variant: cited.cite(plan.design, len(v.blocks)) for v in verdicts if v.decision != "invalid"}
    return Verdict(
        schema=SCHEMA,
        campaign=facts.campaign,
        plan_sha256=plan.sha256(),
        simulated=facts.simulated,
        time_scale=facts.time_scale,
        alpha=plan.alpha,
        delta=plan.delta,
        design=plan.design,
        interim=interim,
        headline=(*_headline(plan, facts, contrasts, void), *_uncalibrated(rows), *map(_told, verdicts)),
        blocks_planned=plan.blocks,
        blocks_used=min(len(c.blocks) for c in contrasts),
        blocks_void=void,
        variants=verdicts,
        calibration={
            "file": calibration.NAME,
            "sha256": cited.sha256,
            "rows": {k: asdict(r) if r else None for k, r in rows.items()},
        },
        notes=(*facts.notes, *(() if plan.window.decode_only else short_windows(cells))),
    )


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The JSON schema of verdict.json."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
    return loaded


def check_verdict(data: Mapping[str, Any]) -> None:
    """Refuses verdict data that does not conform to the schema (InvalidCampaignError names the place)."""
    try:
        jsonschema.validate(data, schema())
    except jsonschema.ValidationError as e:
        raise InvalidCampaignError(f"verdict.json at {e.json_path}: {e.message}; judge the campaign again") from e


def _judge_variant(plan: Plan, table: CellTable, contrast: Contrast, facts: Facts) -> VariantVerdict:
    own, control = facts.of(contrast.variant), facts.of(contrast.control)
    invalid = _why_invalid(plan, contrast, own, control)
    if invalid:
        return _invalid(plan, contrast, own, control, invalid)
    waiting = _why_waiting(contrast)
    levels, accept, reject = judge_levels(plan, contrast, withheld=bool(waiting))
    decision, reason = _decision(plan, levels, accept, reject)
    if waiting:
        decision, reason = "undecided", waiting
    elif own.same_code:
        decision = "same-code"
        reason = f"same machine code as {contrast.control}: this measures the lab's noise, not a change ({reason})"
    d, position = contrast.differences, contrast.position
    return VariantVerdict(
        contrast.variant,
        contrast.control,
        decision,
        reason,
        _stamps(own, control),
        contrast.blocks,
        levels,
        overall(d, position, plan.alpha),
        interaction(d, position, plan.concurrencies, plan.alpha, [x.outcome for x in levels]),
        secondary(plan, table, contrast),
    )


def _why_invalid(plan: Plan, contrast: Contrast, own: VariantFacts, control: VariantFacts) -> str:
    for name, known in ((contrast.control, control), (contrast.variant, own)):
        if not known.proof_ok:
            return f"what ran as {name} is not proven to be {name}"
    measured = plan.blocks - len(contrast.unmeasured)
    if 2 * len(contrast.void) > measured:
        return f"{len(contrast.void)} of {measured} measured blocks are void"
    needed = 2 if plan.design == "mirrored" else 3
    if len(contrast.blocks) < needed:
        return f"{len(contrast.blocks)} usable blocks; an interval needs {needed}"
    if plan.design == "single" and len(set(contrast.position)) == 1:
        return "all usable blocks have one order of starts: drift cannot be told from effect"
    return ""


def _why_waiting(contrast: Contrast) -> str:
    if contrast.unmeasured:
        done = len(contrast.blocks) + len(contrast.void)
        planned = done + len(contrast.unmeasured)
        return f"{done} of {planned} planned blocks measured: intervals so far are not a verdict"
    if len(contrast.blocks) < MIN_BLOCKS:
        return f"{len(contrast.blocks)} usable blocks; a verdict needs {MIN_BLOCKS}"
    return ""


def _invalid(plan: Plan, contrast: Contrast, own: VariantFacts, control: VariantFacts, why: str) -> VariantVerdict:
    levels = unjudged_levels(plan, contrast)
    stamps = _stamps(own, control)
    return VariantVerdict(
        contrast.variant, contrast.control, "invalid", why, stamps, contrast.blocks, levels, None, None, ()
    )


def _decision(plan: Plan, levels: tuple[Level, ...], accept: bool, reject: bool) -> tuple[Decision, str]:
    margin = f"{100 * plan.delta:g} %"
    everywhere = f"at all {len(levels)} concurrencies" if len(levels) > 1 else f"at C={_listed(levels)}"
    if reject:
        return "reject", f"worse than -{margin} at C={_listed([x for x in levels if x.regressed])}"
    if accept:
        better = _listed([x for x in levels if x.outcome == "better"])
        return "accept", f"better at C={better} and non-inferior within {margin} {everywhere}"
    if modes := [x for x in levels if x.modes and x.outcome == "undecided"]:
        return "undecided", f"two modes in the runs at C={_listed(modes)}: no mean speaks for both"
    if all(x.outcome == "equivalent" for x in levels):
        return "undecided", f"equivalent within {margin} {everywhere}: no gain, no loss"
    if open_levels := [x for x in levels if not x.noninferior]:
        return "undecided", f"not shown to be non-inferior within {margin} at C={_listed(open_levels)}"
    return "undecided", f"non-inferior within {margin} everywhere, better nowhere"


def _stamps(own: VariantFacts, control: VariantFacts) -> tuple[str, ...]:
    drawn = [
        text for facts, text in ((own, "autotune drawn"), (control, "control's autotune drawn")) if facts.autotune_drawn
    ]
    return tuple(dict.fromkeys([*drawn, *own.stamps, *control.stamps]))


def _void_blocks(contrasts: list[Contrast]) -> tuple[dict[str, Any], ...]:
    found: dict[int, dict[str, Any]] = {}
    for contrast in contrasts:
        for void in contrast.void:
            entry = found.setdefault(void.block, {"block": void.block, "variants": [], "reasons": []})
            entry["variants"].append(contrast.variant)
            entry["reasons"] += [r for r in void.reasons if r not in entry["reasons"]]
    return tuple(found[b] for b in sorted(found))


def _headline(plan: Plan, facts: Facts, contrasts: list[Contrast], void: tuple[dict[str, Any], ...]) -> Iterator[str]:
    if facts.simulated:
        yield "SIMULATED: timing comes from a calibration file, not from a GPU"
    if void:
        blocks = ", ".join(str(v["block"] + 1) for v in void)
        yield f"{len(void)} of {plan.blocks} blocks void, dropped for both arms: {blocks}"
    missing = max(len(c.unmeasured) for c in contrasts)
    if missing:
        yield f"{missing} of {plan.blocks} blocks not measured yet: NOT A VERDICT"
    yield from facts.warnings
    if plan.design == "single":
        yield _single_design(contrasts)


def _uncalibrated(rows: Mapping[str, calibration.Cited | None]) -> Iterator[str]:
    unknown = [variant for variant, row in rows.items() if row is None]
    if unknown:
        yield f"error rates were not calibrated for this number of blocks: {', '.join(unknown)}"


def _told(v: VariantVerdict) -> str:
    return f"{v.variant} against {v.control}: {v.decision} ({v.reason})"


def _single_design(contrasts: list[Contrast]) -> str:
    odd = any(len(c.blocks) % 2 for c in contrasts)
    lost = "; an odd number of blocks leaves the two orders unbalanced, so intervals are wider" if odd else ""
    return f"one start per variant and block: linear drift is estimated and removed at the cost of one block{lost}"


def _listed(levels: Iterable[Level]) -> str:
    return ",".join(str(x.concurrency) for x in levels)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return None if value != value else float(f"{value:.{DIGITS}g}") if abs(value) < 1 else round(value, DIGITS)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
