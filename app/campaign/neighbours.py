"""Other labs that measure on this machine, and whether their cards are none of ours by their own word."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from app.campaign.conditions import VISIBLE
from app.campaign.runs import RunFolder, measured_now
from app.campaign.runtimes import Setup
from app.errors import RecordsError
from app.records import read_json, write_json

CARDS = "cards.json"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A campaign that another lab measures now; cards: its CUDA_VISIBLE_DEVICES where its servers heed it, else none.

    apart: none of its cards is one of those that it was held against.
    """

    campaign: str
    cards: str
    apart: bool


def cards_of(setup: Setup) -> str:
    """The cards that a campaign's servers can see, by CUDA_VISIBLE_DEVICES; empty where that binds or tells nothing.

    Containers are given theirs by .env, and the simulated engine takes none.
    """
    return os.environ.get(VISIBLE, "") if (setup.runtime, setup.engine) == ("local", "sglang") else ""


def keep_cards(folder: RunFolder, setup: Setup) -> None:
    """Leaves word of the cards of the sitting that begins, for labs beside it; the caller owns the folder."""
    write_json(folder.path / CARDS, {"visible": cards_of(setup)})


def neighbours(runs: Path, cards: str, but: str = "") -> tuple[Neighbour, ...]:
    """Labs that hold a campaign of the folder now, held against these cards; but: a campaign to leave out."""
    found = ((name, _kept(runs / name)) for name in measured_now(runs) if name != but)
    return tuple(Neighbour(name, theirs, _apart(cards, theirs)) for name, theirs in found)


def _kept(folder: Path) -> str:
    # A lab that has just begun, or an older one, has left no word.
    try:
        return str(read_json(folder / CARDS)["visible"])
    except (RecordsError, KeyError, TypeError):
        return ""


def _apart(one: str, other: str) -> bool:
    """Only where both are lists of plain numbers: a UUID, or a part of a card, tells no number to hold against."""
    lists = [[card.strip() for card in cards.split(",")] for cards in (one, other)]
    if not all(card.isdecimal() for cards in lists for card in cards):
        return False
    mine, theirs = ({int(card) for card in cards} for cards in lists)
    return not mine & theirs
