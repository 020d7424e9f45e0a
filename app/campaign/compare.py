"""One comparison from names to verdict: plan, kernels, stack, campaign, judgement, report and ledger entry."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.campaign.runs import RunFolder, new_run, open_run, point_latest
from app.campaign.runtimes import Setup, make_ready, require_runnable
from app.errors import InvalidCampaignError, UsageError
from app.kernel.variant import Variant
from app.kernel.variants import Registry, load_variants, mismatch
from app.lazily import lazily, load_now
from app.progress import Progress, spoken
from app.records import owned, read_json, write_json, write_text
from loadtest.plan import Design, Lengths, Objectives, Plan, WindowRules

# Statistics take seconds to load, and most of what is refused is refused before any are needed.
with lazily("app", "loadtest"):
    from app.campaign import blocks as campaigns
    from app.campaign import conformance, facts, gated, neighbours, outlook
    from loadtest import cells as tables
    from loadtest.importing import runs as imports
    from loadtest.judge import verdict as verdicts

# Wall seconds a start of the simulated decode service takes; a real one is measured by the campaign itself.
START_S = 1.5
REAL_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished comparison."""

    folder: RunFolder
    verdict: verdicts.Verdict


def write_plan(
    variants: Sequence[str],
    concurrencies: Sequence[int],
    *,
    blocks: int,
    design: Design = "mirrored",
    seed: int | None = None,
    lengths: Lengths | None = None,
    window: WindowRules | None = None,
    time_scale: float = 1.0,
    delta: float = 0.01,
    objectives: Objectives | None = None,
    against: str = "",
) -> Plan:
    """The plan for named variants; each is paired with its own control, which is added when not named.

    against: one control for all of them in place of their own.
    """
    registry = load_variants()
    controls = _against(registry, variants, against) if against else registry.with_controls(variants)
    return Plan(
        seed=secrets.randbits(31) if seed is None else seed,
        controls=controls,
        concurrencies=tuple(concurrencies),
        blocks=blocks,
        design=design,
        lengths=lengths or Lengths(1024, 256),
        window=window or WindowRules(),
        time_scale=time_scale,
        delta=delta,
        objectives=objectives,
    )


def begin(
    plan: Plan,
    setup: Setup,
    name: str | None,
    progress: Progress,
    pause: Callable[[], bool] = lambda: False,
    ended: Callable[[], None] = lambda: None,
) -> Outcome:
    """Runs a new campaign under this plan; pause is asked before each block and leaves the rest to `resume`.

    ended: called when a block has ended, the last among them, before anything is stopped or judged.
    """
    require_runnable(setup, plan, load_variants())
    folder = new_run(name)
    with owned(folder.path):
        # Another lab may have taken the name since it was found free.
        new_run(folder.path.name)
        neighbours.keep_cards(folder, setup)
        folder.keep_plan(plan)
        write_json(folder.path / "setup.json", asdict(setup))
        with outlook.resumable(folder):
            return _run(folder, setup, progress, pause, ended)


def resume(
    name: str,
    progress: Progress,
    pause: Callable[[], bool] = lambda: False,
    ended: Callable[[], None] = lambda: None,
) -> Outcome:
    """Goes on with a campaign at its next unfinished block, under its own plan; pause and ended as in `begin`."""
    folder = open_run(name)
    if folder.imported:
        raise UsageError(f"{name} was imported and has nothing to resume; invoke report --id {name} judges it again")
    with owned(folder.path), outlook.resumable(folder):
        setup = setup_in(folder)
        # Until then labs beside it go by the cards of the sitting before.
        neighbours.keep_cards(folder, setup)
        require_runnable(setup, folder.plan(), load_variants())
        return _run(folder, setup, progress, pause, ended)


def setup_in(folder: RunFolder) -> Setup:
    """What a campaign was begun on."""
    return Setup(**read_json(folder.path / "setup.json"))


def judge_again(folder: RunFolder) -> verdicts.Verdict:
    """The verdict of a folder's finished blocks, whose cells are kept beside it; the same rows give the same bytes."""
    plan = folder.plan()
    cells = list(campaigns.finished_cells(folder, plan))
    if not cells:
        raise InvalidCampaignError(f"{folder.path} has no finished block yet; wait while one is measured, or resume it")
    # A campaign that was ended from outside has kept blocks since its cells were last written.
    if not folder.imported:
        tables.write_cells(folder.cells_file, cells)
    return verdicts.judge(plan, cells, facts.campaign_facts(folder, plan))


def keep_imported(folder: RunFolder, imported: imports.Imported, variants: Mapping[str, Any]) -> Outcome:
    """Keeps and judges cells that another load driver measured; the folder has no rows and no proof, and says so.

    variants: each variant's record as the manifest keeps it.
    """
    folder.keep_plan(imported.plan)
    manifest = {"simulated": imported.facts.simulated, "imported": True, "drivers": list(imported.drivers)}
    manifest |= {"notes": list(imported.facts.notes), "variants": dict(variants)}
    folder.keep_manifest(manifest)
    tables.write_cells(folder.cells_file, imported.cells)
    verdict = judge_again(folder)
    write_text(folder.verdict_file, verdict.text())
    point_latest(folder)
    return Outcome(folder, verdict)


def planned_s(plan: Plan, start_s: float) -> float:
    """Wall seconds a campaign takes by plan, without blocks that must be done again."""
    starts = len(plan.starts(0)) * plan.blocks
    level_s = (plan.window.settle_s + plan.window.window_s) / plan.time_scale
    return starts * (start_s + len(plan.concurrencies) * level_s)


def full_campaign_note() -> str:
    """One line: what the whole reference campaign would take on real hardware."""
    plan = write_plan(("baseline", "pinned", "v1", "v2"), (1, 8, 48, 64, 80, 96), blocks=8)
    return (
        f"the full campaign on a real stack: {len(plan.variants)} variants, {len(plan.concurrencies)} concurrencies, "
        f"{plan.blocks} blocks of {len(plan.starts(0))} starts, would take about "
        f"{spoken(planned_s(plan, REAL_START_S))}"
    )


def _against(registry: Registry, variants: Sequence[str], control: str) -> dict[str, str]:
    judged = [registry.get(name).name for name in dict.fromkeys(variants) if name != registry.get(control).name]
    if not judged:
        raise UsageError(f"--against {control} leaves no variant to compare with it; name one in --variants")
    if why := next((w for name in judged if (w := mismatch(registry.get(name), registry.get(control)))), None):
        raise UsageError(f"--against {why}")
    return dict.fromkeys(judged, control)


def _run(
    folder: RunFolder, setup: Setup, progress: Progress, pause: Callable[[], bool], ended: Callable[[], None]
) -> Outcome:
    # It lasts hours, and its end must not meet sources that were changed under it.
    load_now("app.campaign", "app.ledger.campaigns", "app.report", "loadtest")
    plan, registry = folder.plan(), load_variants()
    left = [b for b in range(plan.blocks) if campaigns.unsettled(folder.block_record(b)) is not None]
    if not left:
        progress.say("every block is measured; judging the rows again")
    else:
        whole_s = planned_s(plan, START_S if setup.engine == "sim" else REAL_START_S)
        for line in outlook.outlook(folder, setup, plan, len(left), whole_s):
            progress.say(line)
        progress.step("the load client is played every shape of stream")
        conformance.require_conformance(folder)
    kernels, stack = make_ready(setup, plan, registry, folder.path, progress.step)
    gated.keep_findings(folder, plan, registry, kernels, setup, progress.say)
    records = {v: variant_record(registry.get(v)) for v in plan.variants}
    hint = outlook.advice(folder, plan, setup)
    campaigns.run(
        campaigns.Campaign(plan, kernels, folder, stack, progress, records, pause=pause, ended=ended, advice=hint)
    )
    verdict = judge_again(folder)
    write_text(folder.verdict_file, verdict.text())
    point_latest(folder)
    return Outcome(folder, verdict)


def variant_record(variant: Variant) -> dict[str, Any]:
    """What the manifest keeps of a variant: its words as they stood when the campaign began."""
    prediction = {str(c): list(percent) for c, percent in variant.prediction.items()}
    return {"hypothesis": variant.hypothesis, "prediction": prediction, "status": variant.status}
