"""What a sitting says of itself: before its first start, and of blocks that a busy machine voids."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from app.campaign.conditions import ORDER, VISIBLE
from app.campaign.neighbours import Neighbour, cards_of, neighbours
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.errors import UnwrittenError
from app.progress import spoken
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.plan import Plan


def outlook(folder: RunFolder, setup: Setup, plan: Plan, blocks: int, whole_s: float) -> Iterator[str]:
    """Lines to know before the first start: other labs at work, a pilot's limits, how long it takes.

    blocks: how many are still to be measured. whole_s: planned wall seconds of the whole campaign.
    """
    own = cards_of(setup)
    for other in neighbours(folder.path.parent, own, but=folder.path.name):
        yield _beside(other, own.visible)
    if plan.blocks < MIN_BLOCKS:
        # A single design spends one more degree of freedom, on position.
        noise = plan.blocks > (2 if plan.design == "single" else 1)
        says = "says how many an effect takes" if noise else "needs 3 blocks of a single design to read noise from"
        yield (
            f"{plan.blocks} blocks are a pilot without a verdict, which takes {MIN_BLOCKS} or more; afterwards "
            f"`./lab plan --campaign {folder.path.name}` {says}"
        )
    left = spoken(whole_s * blocks / plan.blocks)
    yield f"{len(plan.starts(0)) * blocks} starts in {blocks} blocks take at least {left} by plan"


def _beside(other: Neighbour, own: str) -> str:
    if other.apart:
        return (
            f"another lab measures {other.campaign} on this machine, on other cards: {VISIBLE} is {other.cards} there "
            f"and {own} here. Cores are not looked at: with too few for both, they void each other's blocks"
        )
    return (
        f"another lab measures {other.campaign} on this machine: two at once void each other's blocks. This one goes "
        f"on anyway: unless each has cores and a card of its own, interrupt it and wait ({VISIBLE} as numbers, in "
        f"both, under one {ORDER} and with --runtime local, shows cards to be others)"
    )


def advice(folder: RunFolder, plan: Plan, setup: Setup) -> str:
    """What to do about blocks that a busy machine voids."""
    said = f"the machine is busy: end other work, or interrupt and go on later with `{folder.resume_command}`"
    # The demo has no such option.
    slower = plan.time_scale > 1 and not setup.demo
    return f"{said}; a campaign with a --time-scale under {plan.time_scale:g} asks less of it" if slower else said


@contextlib.contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """An interruption of what runs inside, or a file that it cannot write, says by which command it goes on."""
    try:
        yield
    except KeyboardInterrupt as e:
        raise KeyboardInterrupt(f"finished blocks are kept; go on with `{folder.resume_command}`") from e
    except UnwrittenError as e:
        raise UnwrittenError(f"{e}, then go on with `{folder.resume_command}`") from e
