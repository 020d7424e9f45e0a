"""Other labs that measure on this machine, and whether their cards are none of ours by their own word."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from app.campaign.conditions import ORDER, VISIBLE
from app.campaign.runs import RunFolder, measured_now
from app.campaign.runtimes import Setup
from app.errors import RecordsError
from app.records import read_json, write_json

CARDS = "cards.json"
# How CUDA counts cards where nothing is asked for, and all that servers of older labs knew.
USUAL_ORDER = "FASTEST_FIRST"


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards that a campaign's servers can see: CUDA_VISIBLE_DEVICES, empty where that binds or tells nothing.

    order: CUDA_DEVICE_ORDER, in which its numbers count.
    """

    visible: str = ""
    order: str = USUAL_ORDER


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A campaign that another lab measures now; cards: its CUDA_VISIBLE_DEVICES where its servers heed it, else none.

    apart: none of its cards is one of those that it was held against.
    """

    campaign: str
    cards: str
    apart: bool


def cards_of(setup: Setup) -> Cards:
    """The cards of a campaign on this setup; containers are given theirs by .env, the simulated engine takes none."""
    if (setup.runtime, setup.engine) != ("local", "sglang"):
        return Cards()
    return Cards(os.environ.get(VISIBLE, ""), os.environ.get(ORDER) or USUAL_ORDER)


def keep_cards(folder: RunFolder, setup: Setup) -> None:
    """Leaves word of the cards of the sitting that begins, for labs beside it; the caller owns the folder."""
    write_json(folder.path / CARDS, asdict(cards_of(setup)))


def neighbours(runs: Path, cards: Cards, but: str = "") -> tuple[Neighbour, ...]:
    """Labs that hold a campaign of the folder now, held against these cards; but: a campaign to leave out."""
    found = ((name, _kept(runs / name)) for name in measured_now(runs) if name != but)
    return tuple(Neighbour(name, theirs.visible, _apart(cards, theirs)) for name, theirs in found)


def _kept(folder: Path) -> Cards:
    # A lab that has just begun, or an older one, has left no word.
    try:
        found = read_json(folder / CARDS)
        return Cards(str(found["visible"]), str(found.get("order", USUAL_ORDER)))
    except (RecordsError, KeyError, TypeError):
        return Cards()


def _apart(one: Cards, other: Cards) -> bool:
    """Only where both are lists of plain numbers that count alike: a UUID, or a part of a card, tells no number."""
    lists = [[card.strip() for card in cards.visible.split(",")] for cards in (one, other)]
    if one.order != other.order or not all(card.isdecimal() for cards in lists for card in cards):
        return False
    mine, theirs = ({int(card) for card in cards} for cards in lists)
    return not mine & theirs
