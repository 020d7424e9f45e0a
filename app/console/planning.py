"""What `invoke plan` shows: blocks and hours that an effect needs, from noise that was measured."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.table import Table

from app import arguments
from app.campaign.blocks import finished_cells
from app.campaign.runs import open_run
from app.errors import UsageError
from app.terminal import show
from loadtest.judge.forecast import Forecast, Pace, Pilot, forecast, seen_in
from loadtest.plan import check_concurrencies

LEVELS = "1,8,48,64,80,96"
DESIGN = "mirrored"
# Beyond these a figure is a slip of the pen: differences that are all noise, changes tenfold, a year of measuring.
MOST_SD_PCT, MOST_EFFECT_PCT, MOST_HOURS = 100, 1000, 8760


def pilot_of(campaign: str, sd: str, concurrency: str, design: str) -> Pilot:
    """Noise of a measured campaign, or an sd in percent taken as true at every concurrency.

    concurrency, design: empty for the campaign's own, or for LEVELS and DESIGN beside an sd; a campaign's noise is
    known for no others, so UsageError names one that it was not measured with.
    """
    levels = arguments.numbers(concurrency or LEVELS, "concurrency")
    check_concurrencies(levels)
    chosen = arguments.design(design or DESIGN)
    if sd:
        share = arguments.positive(sd, "sd", MOST_SD_PCT) / 100
        return Pilot(chosen, dict.fromkeys(levels, share), None, f"sd of {sd} % as given")
    folder = open_run(campaign)
    plan = folder.plan()
    if concurrency and levels != plan.concurrencies:
        raise _unknown_noise("concurrency", concurrency, folder.path.name)
    if design and chosen != plan.design:
        raise _unknown_noise("design", design, folder.path.name)
    mark = " (SIMULATED)" if folder.manifest().get("simulated", True) else ""
    return Pilot.from_campaign(plan, finished_cells(folder, plan), f"campaign {folder.path.name}{mark}")


def pace(start_s: int, level_s: int) -> Pace:
    """Wall seconds of a start and of each concurrency it visits."""
    return Pace(arguments.at_least(start_s, 0, "start-s"), arguments.at_least(level_s, 1, "level-s"))


def show_plan(pilot: Pilot, effect: str, power: str, hours: str, variants: int, pace: Pace, as_json: bool) -> None:
    """Prints what finds the effect, what other sizes would find, and what the hours one has can show."""
    share, chance = arguments.number(effect, "effect") / 100, arguments.number(power, "power")
    if share > MOST_EFFECT_PCT / 100:
        raise UsageError(f"--effect {effect} is out of range; at most {MOST_EFFECT_PCT:,} %")
    limit = arguments.positive(hours, "hours", MOST_HOURS) if hours else None
    found = forecast(pilot, pace, share, arguments.at_least(variants, 2, "variants"), chance)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    _print_forecast(found)
    if limit is not None:
        seen = seen_in(pilot, pace, limit, variants, found.power)
        visible = ", ".join(f"{v:.2f} % at C={c}" for c, v in seen.detectable_pct.items())
        print(f"{hours} h hold {seen.blocks} blocks, which find {visible} with power {found.power:g}")


def _unknown_noise(option: str, value: str, campaign: str) -> UsageError:
    return UsageError(f"--{option} {value}: campaign {campaign} measured no such noise; leave it out, or give --sd")


def _print_forecast(found: Forecast) -> None:
    def blocks(number: int | None) -> str:
        return "more than 400" if number is None else str(number)

    def lasting(number: int | None, hours: float | None) -> str:
        return f"{blocks(number)} blocks" + ("" if hours is None else f", about {hours:.1f} h")

    print(f"noise from {found.source}; {found.design} blocks")
    change = f"{found.effect_pct:+g} % at every concurrency"
    print(f"{change}, with power {found.power:g}: {lasting(found.blocks, found.hours)}")
    print("  " + ", ".join(f"C={c}: {blocks(n)}" for c, n in found.blocks_by_level.items()))
    print(f"no loss beyond the margin anywhere: {lasting(found.blocks_to_accept, found.hours_to_accept)}")
    if found.blocks and found.blocks_to_accept:
        print(f"for both: invoke compare --blocks {max(found.blocks, found.blocks_to_accept)}")
    table = Table("blocks", "hours", *(f"C={c}" for c in found.planned_sd_pct), title="smallest change found, %")
    for choice in found.choices:
        table.add_row(str(choice.blocks), f"{choice.hours:.1f}", *(f"{v:.2f}" for v in choice.detectable_pct.values()))
    show(table)
