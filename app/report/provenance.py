"""Where each figure of a report comes from, and what the design behind it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

from app.report.campaign_view import CampaignView
from app.report.evidence import Grid
from app.report.wording import listed, number


def origin_grid(view: CampaignView) -> Grid:
    """Which figures are simulated, measured, compiled, or merely reported by others."""
    return Grid("Where the figures come from", ("kind", "what"), tuple(_origins(view)))


def _origins(view: CampaignView) -> Iterator[tuple[str, str]]:
    if view.imported:
        server = ", from a simulated server" if view.simulated else ""
        what = "every rate, latency and effect: as another load driver's files and import.csv declare them"
        yield "imported", f"{what}{server}"
    elif view.simulated:
        yield (
            "simulated",
            "every rate, latency and effect: the engine behind the router keeps time by a calibration file",
        )
        yield "reported", "what the calibration takes from the reference campaign; the file names each number's source"
        yield "measured", "the client, the router, the clock and the processes: these are real, on this host"
    else:
        yield "measured", f"every rate, latency and effect, on {_cards(view)}"
    if view.gate:
        yield (
            "compiled",
            "registers, shared memory, spills and code hashes of the gate: found by compiling, not by running",
        )
    if any(view.variant_record(v).get("prediction") for v in view.variants):
        yield "predicted", "the brackets beside intervals: written down in the variant's file before the campaign"


def _cards(view: CampaignView) -> str:
    names = {str((r.conditions or {}).get("gpu.name", "a GPU whose name was not recorded")) for r in view.starts}
    return listed(sorted(names)) or "hardware that was not recorded"


def limits(view: CampaignView) -> tuple[str, ...]:
    """What this campaign cannot tell, as sentences."""
    return tuple(_limits(view))


def _limits(view: CampaignView) -> Iterator[str]:
    plan = view.plan
    if view.simulated:
        yield "Whether the kernel is faster on a GPU: a simulated campaign checks the lab, not the kernel."
    yield (
        "Latency that users of an open service would see. Every client waits for its answer before it asks again, so a "
        "stall delays the requests that would have shown it; throughput and time per token are unharmed."
    )
    same = "" if view.imported else ", the same list for every variant of a block"
    yield (
        f"Other lengths and prompts than these: {plan.lengths.prompt_tokens} tokens in, {plan.lengths.output_tokens} "
        f"out{same}."
    )
    kept = "these" if view.imported else "those recorded beside each start in conditions.json"
    yield f"Other models, cards, hosts or days than {kept}: one host is one draw."
    if seen := [v.mde_pct for j in view.judged for v in j.levels if v.mde_pct is not None]:
        yield f"Effects smaller than {number(max(seen), 1)} % at the worst concurrency; the table has each one's limit."
    if plan.time_scale != 1:
        yield f"How the client behaves at life's pace: engine time ran {plan.time_scale:g} times as fast."
    yield "Whether the kernel's results are right: that is tested against a float64 reference, apart from this report."
