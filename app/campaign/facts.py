"""What gate and proof established about a campaign's variants, as the verdict needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.campaign.integrity import check_belonging
from app.campaign.runs import RunFolder
from app.engine import ALONE, FORCED
from app.errors import InvalidCampaignError
from app.records import read_json
from loadtest.importing.runs import UNPROVEN
from loadtest.judge.facts import Facts, VariantFacts
from loadtest.plan import Plan

# In a proof's evidence: why it is another start's.
LOST = "lost"
MINI = "mini load balancer"
GATE_NOT_RUN = "the gate was not run on {}; invoke check --variant NAME compiles them"


def campaign_facts(folder: RunFolder, plan: Plan) -> Facts:
    """Facts from manifest.json, gate.json where the gate was run, and the proof.json of every finished start.

    An import has its manifest alone.

    InvalidCampaignError when these are not of one campaign.
    """
    try:
        return _read_facts(folder, plan)
    except (TypeError, ValueError, LookupError, AttributeError) as e:
        raise InvalidCampaignError(
            f"{folder.path}: manifest, gate or proofs are malformed ({type(e).__name__}: {e}); they were changed"
        ) from e


def _read_facts(folder: RunFolder, plan: Plan) -> Facts:
    manifest = folder.manifest()
    if folder.imported:
        return Facts(
            campaign=folder.path.name,
            simulated=bool(manifest["simulated"]),
            variants=dict.fromkeys(plan.variants, UNPROVEN),
            notes=tuple(manifest["notes"]),
        )
    gate: Mapping[str, Any] = read_json(folder.gate_file) if folder.gate_file.is_file() else {}
    proofs = {v: list(_proofs(folder, plan, v)) for v in plan.variants}
    return Facts(
        campaign=folder.path.name,
        simulated=bool(manifest["simulated"]),
        time_scale=plan.time_scale,
        variants={v: _facts_of(v, plan, manifest, gate, proofs[v]) for v in plan.variants},
        warnings=(*check_belonging(folder, plan, manifest), *alarms(p for found in proofs.values() for p in found)),
        notes=(*path_told(manifest), *balanced(manifest), *_ungated(plan, gate), *_lost(proofs)),
    )


def _lost(proofs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """That starts' own proofs are gone, which others of the variant stand for; each reason once."""
    reasons = [str(p["evidence"][LOST]) for found in proofs.values() for p in found if LOST in p.get("evidence", {})]
    for reason in dict.fromkeys(reasons):
        yield f"the proofs of {reasons.count(reason)} starts are not their own: {reason}"


def path_told(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What the engine said of a path forced on another GPU than the kernel's own, or of one rank alone; or nothing."""
    path = str(manifest.get("stack", {}).get("path", ""))
    return (path,) if path.startswith(FORCED) or path.endswith(ALONE) else ()


def alarms(proofs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Pairs whose answers differ far more than the control's own do: no fault, but a reason to look.

    Of several starts that were looked at, the one that differs the most is told.
    """
    apart = defaultdict[tuple[str, str], list[Mapping[str, Any]]](list)
    for found in (proof.get("evidence", {}) for proof in proofs):
        # One that stands for a lost one may repeat what the start that it is of was found to show.
        shown = {} if LOST in found else found.get("after_load", {})
        for pair in shown.get("logprobs", {}).get("against", ()):
            if pair["alarm"]:
                apart[pair["variant"], pair["control"]].append(pair)
    for (variant, control), pairs in apart.items():
        most = max(pairs, key=lambda pair: float(pair["max_nats"]))
        counted = f" (the most of {len(pairs)} starts)" if len(pairs) > 1 else ""
        yield (
            f"log probabilities of {variant}'s answers are up to {most['max_nats']:g} nats from those of {control}, "
            f"whose own are {most['control_max_nats']:g} apart{counted}; look at attention's outputs"
        )


def balanced(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What a campaign behind the mini load balancer cannot know; nothing behind SGLang's router."""
    router = str(manifest.get("stack", {}).get("router", ""))
    if MINI not in router:
        return ()
    return (
        f"requests passed {router}, in place of the router: one Python process handles every chunk of a stream, which "
        "widens latencies at high rates, and counts nothing, so what it refused is known from the client alone",
    )


def _ungated(plan: Plan, gate: Mapping[str, Any]) -> tuple[str, ...]:
    missing = [variant for variant in plan.controls if variant not in gate]
    return (GATE_NOT_RUN.format(", ".join(missing) if gate else "these variants"),) if missing else ()


def _facts_of(
    variant: str, plan: Plan, manifest: Mapping[str, Any], gate: Mapping[str, Any], proofs: list[dict[str, Any]]
) -> VariantFacts:
    kinds = {finding["kind"] for finding in gate.get(variant, {}).get("findings", ())}
    drawn = "draw" in kinds or any(len(p.get("candidates", ())) > 1 for p in proofs)
    configs = sorted({str(p["config"]) for p in proofs})
    forced = path_told(manifest) if manifest["kernels"][variant]["selector"] == "triton" else ()
    return VariantFacts(
        autotune_drawn=drawn,
        same_code="no-op" in kinds or _same_file(variant, plan, manifest),
        # The campaign ends at a failed proof, so a finished start without one cannot be.
        proof_ok=bool(proofs),
        stamps=((f"autotune drawn: {', '.join(configs)}",) if drawn else ()) + forced,
    )


def _same_file(variant: str, plan: Plan, manifest: Mapping[str, Any]) -> bool:
    control, kernels = plan.controls.get(variant), manifest["kernels"]
    return control is not None and kernels[variant] == kernels[control]


def _proofs(folder: RunFolder, plan: Plan, variant: str) -> Iterator[dict[str, Any]]:
    for block in range(plan.blocks):
        if folder.block_record(block) is not None:
            for start in plan.starts(block):
                if start.variant == variant:
                    yield dict(read_json(folder.start(start) / "proof.json"))
