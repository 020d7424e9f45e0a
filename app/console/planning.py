"""What `invoke plan` shows: blocks and hours that an effect needs, from noise that was measured."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.table import Table

from app import arguments
from app.campaign.blocks import finished_cells
from app.campaign.runs import open_run
from app.terminal import show
from loadtest.judge.forecast import Forecast, Pace, Pilot, forecast, seen_in


def pilot_of(campaign: str, sd: str, concurrency: str, design: str) -> Pilot:
    """Noise of a measured campaign, or an sd in percent taken as true at every concurrency."""
    if sd:
        levels = arguments.numbers(concurrency, "concurrency")
        share = arguments.number(sd, "sd") / 100
        return Pilot(arguments.design(design), dict.fromkeys(levels, share), None, f"sd of {sd} % as given")
    folder = open_run(campaign)
    plan = folder.plan()
    mark = " (SIMULATED)" if folder.manifest().get("simulated", True) else ""
    return Pilot.from_campaign(plan, finished_cells(folder, plan), f"campaign {folder.path.name}{mark}")


def pace(start_s: float, level_s: float) -> Pace:
    """Wall seconds of a start and of each concurrency it visits."""
    return Pace(start_s, level_s)


def show_plan(pilot: Pilot, effect: str, power: str, hours: str, variants: int, pace: Pace, as_json: bool) -> None:
    """Prints what finds the effect, what other sizes would find, and what the hours one has can show."""
    found = forecast(pilot, pace, arguments.number(effect, "effect") / 100, variants, arguments.number(power, "power"))
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    _print_forecast(found)
    if hours:
        seen = seen_in(pilot, pace, arguments.number(hours, "hours"), variants, found.power)
        visible = ", ".join(f"{v:.2f} % at C={c}" for c, v in seen.detectable_pct.items())
        print(f"{hours} h hold {seen.blocks} blocks, which find {visible} with power {found.power:g}")


def _print_forecast(found: Forecast) -> None:
    def blocks(number: int | None) -> str:
        return "more than 400" if number is None else str(number)

    print(f"noise from {found.source}; {found.design} blocks")
    print(f"{found.effect_pct:+g} % at every concurrency: {blocks(found.blocks)} blocks, power {found.power:g}")
    print("  " + ", ".join(f"C={c}: {blocks(n)}" for c, n in found.blocks_by_level.items()))
    print(f"no loss beyond the margin anywhere: {blocks(found.blocks_to_accept)} blocks")
    if found.hours is not None:
        print(f"about {found.hours:.1f} h")
    table = Table("blocks", "hours", *(f"C={c}" for c in found.planned_sd_pct), title="smallest change found, %")
    for choice in found.choices:
        table.add_row(str(choice.blocks), f"{choice.hours:.1f}", *(f"{v:.2f}" for v in choice.detectable_pct.values()))
    show(table)
