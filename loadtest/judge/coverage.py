"""How much of each slot's work a window holds: in a short one it is chance how many prefills fall into it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

from loadtest.cells import Cell

# With fewer requests of a slot than this in a window, one prefill more or less is a large part of what it shows.
FEWEST = 2.0


def short_windows(cells: Iterable[Cell]) -> Iterator[str]:
    """A sentence on the concurrencies whose windows hold under `FEWEST` requests of each slot; none without any."""
    held = defaultdict[int, list[float]](list)
    for cell in cells:
        if cell.valid:
            held[cell.concurrency].append(cell.requests / cell.concurrency)
    short = {c: median(shares) for c, shares in sorted(held.items()) if median(shares) < FEWEST}
    if short:
        levels = ",".join(map(str, short))
        yield (
            f"windows at C={levels} hold {min(short.values()):.1f} to {max(short.values()):.1f} requests of each slot: "
            "how many prefills fall into one is chance, so blocks differ by that; longer windows differ less"
        )
