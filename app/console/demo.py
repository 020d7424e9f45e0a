"""The main job in small: a real campaign of the reference variants on the simulated engine, in a few minutes."""

from __future__ import annotations

from app.campaign.compare import write_plan
from loadtest.plan import Lengths, Plan, WindowRules

VARIANTS = ("baseline", "pinned", "v1", "v2")
CONCURRENCIES = (1, 8, 96)
BLOCKS = 4
# Simulated seconds per wall second: at C=96 the client then carries about 8,500 tokens a second, which two cores can.
TIME_SCALE = 10.0
WINDOW = WindowRules(settle_s=4.0, window_s=25.0, fill_timeout_s=200.0)


def demo_plan(seed: int | None = None) -> Plan:
    """The demo's plan; a seed is drawn when none is given, and the plan records it."""
    return write_plan(
        VARIANTS,
        CONCURRENCIES,
        blocks=BLOCKS,
        design="single",
        seed=seed,
        lengths=Lengths(prompt_tokens=64, output_tokens=96),
        window=WINDOW,
        time_scale=TIME_SCALE,
    )
