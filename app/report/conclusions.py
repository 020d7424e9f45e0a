"""What a campaign says, in sentences: the same words in every kind of report and in the ledger."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from app.campaign.conditions import said_once
from app.engine.sim.engine import CALIBRATION
from app.report.campaign_view import CampaignView
from app.report.judged import Judged, Level
from app.report.predictions import SO_FAR, Prediction
from app.report.wording import counted, interval, listed, number, predicted_range, signed
from loadtest.judge.calibration import Table, read_table

# "start-01-v2 C=96: decode queues": where, then what.
_PLACED = re.compile(r"([^:]*C=\d+|start-\d+-[^:]*): (.*)", re.DOTALL)
_BUSY = ("client late", "client saturated", "late reads", "requests in flight on average")
# Of the verdict's headline, what every form of a report repeats above its figures.
_ALARMS = (" changed between blocks: ", "log probabilities of ")
_AGAINST = {"refuted", SO_FAR["refuted"]}
_NUMBERS = re.compile(r"\d+(\.\d+)?")
DECISIONS = {
    "accept": "accepted",
    "reject": "rejected",
    "invalid": "invalid",
    "undecided": "undecided",
    "same-code": "the same code as its control",
}


def simulated_mark(view: CampaignView) -> str:
    """The line that stands above every figure of a simulated campaign; empty when a real engine was measured."""
    if not view.simulated:
        return ""
    scale = view.plan.time_scale
    pace = f"time scale {scale:g}: {scale:g} s of engine time pass in 1 s" if scale != 1 else "in real time"
    return f"SIMULATED, {pace}. No figure here was measured on a GPU."


def headline(view: CampaignView) -> str:
    """One sentence with the decision of every judged variant."""
    if not view.judged:
        return "No verdict: this campaign has not been judged"
    if view.verdict.get("interim"):
        return "Not a verdict yet: blocks of the plan are missing"
    groups = dict[str, list[str]]()
    for j in sorted(view.judged, key=lambda j: list(DECISIONS).index(j.decision)):
        groups.setdefault(j.decision, []).append(j.variant)
    said = (f"{listed(names)} {'is' if len(names) == 1 else 'are'} {DECISIONS[d]}" for d, names in groups.items())
    return "; ".join(said)


def basis(view: CampaignView) -> str:
    """What the verdict rests on: blocks, starts, order, margin and confidence."""
    plan, blocks = view.plan, counted(view.plan.blocks, "block")
    orders = {"mirrored": "in a random order and its mirror", "single": "in orders balanced over the blocks"}
    order = f"{'twice' if plan.design == 'mirrored' else 'once'}, as imported" if view.imported else orders[plan.design]
    used = f"{view.verdict['blocks_used']} of {blocks} used, {len(view.void_blocks)} void" if view.judged else blocks
    alone = " in windows of decode alone" if plan.window.decode_only else ""
    used += f", {counted(len(view.redone), 'void attempt')} measured again" if view.redone else ""
    return (
        f"{used}; each block starts every variant {order}{alone}; margin {100 * plan.delta:g} %; "
        f"intervals hold for all concurrencies together at {100 * (1 - plan.alpha):g} %."
    )


def void_blocks(view: CampaignView) -> tuple[str, ...]:
    """Each void block with its reasons; reasons that differ in numbers alone are said once."""
    return tuple(f"block {block + 1}: {_condensed(reasons)}" for block, reasons in view.void_blocks.items())


def warnings(view: CampaignView) -> tuple[str, ...]:
    """What must be known before any figure is: changed conditions, log probabilities apart, promotions by force."""
    told = tuple(line for line in view.verdict.get("headline", ()) if any(words in line for words in _ALARMS))
    forced = (
        f"{entry['variant']} was made stable by force at {entry['at']}, against this campaign's decision "
        f"({entry['decision']}): {entry['reason']}"
        for entry in view.forced
    )
    own = own_calibration(view)
    return (*((f"calibration: {own}",) if own else ()), *told, *forced, *filter(None, (busy_machine(view),)))


def redone(view: CampaignView) -> tuple[str, ...]:
    """Each attempt that was void and measured again, with its reasons."""
    return tuple(f"block {r['block'] + 1}, attempt {r['attempt']}: {_condensed(r['void'])}" for r in view.redone)


def _condensed(reasons: Iterable[str]) -> str:
    kinds = dict[str, list[tuple[str, str]]]()
    for reason in reasons:
        placed = _PLACED.match(reason)
        where, what = placed.groups() if placed else ("", reason)
        kinds.setdefault(_NUMBERS.sub("#", what), []).append((what, where))
    by_places = dict[tuple[str, ...], list[str]]()
    for found in kinds.values():
        by_places.setdefault(tuple(where for _, where in found), []).append(found[0][0])
    return "; ".join(_said_once(whats, places) for places, whats in by_places.items())


def _said_once(whats: list[str], places: tuple[str, ...]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    each = "" if len(whats) == 1 else "both at " if len(whats) == 2 else "all at "
    return "; ".join(whats) + (f" ({each}{places[0]}{more})" if places[0] else "")


def found(judged: Judged) -> str:
    """Effects at the concurrencies where something was shown: '-15.8 % at C=1 and -7.1 % at C=96'."""
    shown = [level for level in judged.levels if level.outcome in ("better", "worse")]
    return listed(f"{signed(level.effect_pct)} % at C={level.concurrency}" for level in shown)


def undecided(judged: Judged) -> tuple[str, ...]:
    """What each undecided concurrency would take; where two modes are why, `doubts` says so."""
    return tuple(_would_decide(x) for x in judged.levels if x.outcome == "undecided" and not x.modes)


def _would_decide(level: Level) -> str:
    needs = [f"this campaign could see {number(level.mde_pct, 1)} %"] if level.mde_pct is not None else []
    needs += [f"{counted(level.blocks_to_decide, 'block')} would decide"] if level.blocks_to_decide else []
    return f"C={level.concurrency} is undecided" + (f": {', '.join(needs)}" if needs else "")


def shape(judged: Judged) -> str:
    """How the effect depends on concurrency; empty when that was not estimated, or before there is a verdict."""
    slope = judged.per_doubling
    if slope is None or judged.waiting:
        return ""
    words = {
        "rises": "rises with concurrency",
        "falls": "falls with concurrency",
        "flat": "shows no trend over concurrency",
    }
    change = f"{signed(slope.effect_pct, 2)} % a doubling, {interval(slope.low_pct, slope.high_pct, 2)}"
    cross = "; worse at the lowest and better at the highest" if judged.crossover else ""
    return f"The effect {words.get(judged.shape, judged.shape)} ({change}){cross}."


def doubts(judged: Judged) -> tuple[str, ...]:
    """Reasons to look before believing: two modes, or two estimates that disagree."""
    modes = [
        f"C={level.concurrency}: two modes {number(abs(level.modes['gap_pct']), 1)} % apart, slow runs "
        f"{level.modes['variant_slow']} of {level.modes['variant_runs']} ({judged.variant}) and "
        f"{level.modes['control_slow']} of {level.modes['control_runs']} ({judged.control})"
        for level in judged.levels
        if level.modes
    ]
    estimates = [
        f"C={level.concurrency}: the mean, {signed(level.effect_pct)} %, and the Hodges-Lehmann estimate, "
        f"{signed(level.hodges_lehmann_pct)} %, disagree"
        for level in judged.levels
        if level.doubt
    ]
    return (*modes, *estimates)


def error_rates(view: CampaignView) -> tuple[str, ...]:
    """What the lab's own calibration says of verdicts of this kind, per variant."""
    calibration = view.verdict.get("calibration", {})
    table = read_table()
    # Of another table than the one at hand, all that is known is what the verdict itself cites.
    known = table if table.sha256 == calibration.get("sha256") else None
    return tuple(_cited(name, row, calibration["file"], known) for name, row in calibration.get("rows", {}).items())


def _cited(name: str, row: Mapping[str, Any] | None, file: str, table: Table | None) -> str:
    if row is None:
        return f"{name}: this design and number of blocks is not in {file}; its error rates are not known."
    held = table and 100 * table.held_under_difference(row["design"], row["blocks"])
    apart = f" and in at least {held:.1f} % of those with one" if held else ""
    return (
        f"{name}: at most {100 * row['false_verdicts']:.1f} % false verdicts in campaigns without a difference; "
        f"simultaneous intervals held in at least {100 * row['simultaneous_low']:.1f} % of these{apart} "
        f"(the worst rows of one-mode noise, {row['campaigns']:,} campaigns each; {file}, {row['design']}, "
        f"{row['blocks']} blocks)."
    )


def foretold(predictions: Iterable[Prediction]) -> str:
    """What was predicted, before anything is said of the outcome: '-2 to +2 % at C=1 and +15 to +25 % at C=96'."""
    return listed(f"{predicted_range(*p.predicted)} % at C={p.concurrency}" for p in predictions)


def unforetold(record: Mapping[str, Any]) -> str:
    """What stands in place of a prediction where nothing was foretold of the levels measured."""
    return "none for the concurrencies measured" if record.get("prediction") else "none recorded"


def prediction_sentence(prediction: Prediction) -> str:
    """'C=96: predicted +15 to +25 %, found -8.0 to -6.1 %: refuted'."""
    found = f"found {interval(*prediction.found)} %" if prediction.found else "no interval"
    foreseen = predicted_range(*prediction.predicted)
    return f"C={prediction.concurrency}: predicted {foreseen} %, {found}: {prediction.outcome}"


def hypothesis_outcome(predictions: Iterable[Prediction]) -> str:
    """One word for a whole prediction: refuted when any part is, held or not judged when all parts are, else open.

    Where there is no verdict yet: against it so far, or for it so far, in place of the first two.
    """
    outcomes = {p.outcome for p in predictions}
    if not outcomes:
        return "no prediction"
    if against := outcomes & _AGAINST:
        return against.pop()
    return outcomes.pop() if len(outcomes) == 1 else "open"


def outcomes_counted(predictions: Iterable[Prediction]) -> str:
    """What became of a prediction: 'held' where all of it did, '1 held, 1 open', 'refuted (1 refuted, 1 held)'."""
    predictions = list(predictions)
    whole, counts = hypothesis_outcome(predictions), Counter(p.outcome for p in predictions)
    if len(counts) < 2:
        return whole
    each = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"{whole} ({each})" if whole in _AGAINST else each


def own_calibration(view: CampaignView) -> str:
    """Says that the simulated engine kept time by another file than the shipped one; empty when it did not."""
    digest = view.manifest.get("stack", {}).get("calibration")
    if not digest or digest == hashlib.sha256(CALIBRATION.read_bytes()).hexdigest():
        return ""
    return (
        f"not the one shipped with this version but one with SHA-256 {digest[:16]}: the effect is what that file says"
    )


def busy_machine(view: CampaignView) -> str:
    """What to do where the machine itself spoiled blocks for good; empty where none was, or a repeat was sound."""
    spoiled = [r for reasons in view.void_blocks.values() for r in reasons]
    late = sum(any(word in reason for word in _BUSY) for reason in spoiled)
    if not late:
        return ""
    return (
        f"this machine was too busy for the load client ({late} findings such as a late client, glued reads, empty "
        "slots): end other work or lower --time-scale, and measure again; it says nothing of the variants"
    )


def conditions(view: CampaignView) -> str:
    """Engine, host and cards in one line; of an import, where it came from."""
    if view.imported:
        driver = listed(view.drivers) or "another load driver"
        simulated = "simulated engine, " if view.simulated else ""
        unknown = "conditions" if view.simulated else "engine and conditions"
        return f"{simulated}imported from {driver}, {unknown} not recorded"
    seen = [r.conditions or {} for r in view.starts]
    fields = (("host", "host"), ("cpu", "cpu"), ("gpu.name", "GPU"), ("gpu.driver_version", "driver"))
    found = [
        f"{word} {listed(dict.fromkeys(said_once(c[k]) for c in seen if k in c))}"
        for k, word in fields
        if any(k in c for c in seen)
    ]
    engine = "simulated engine" if view.simulated else "real engine"
    return ", ".join([engine, *found]) if found else f"{engine}, conditions not recorded"
