from __future__ import annotations

from pathlib import Path

import pytest

from app.campaign.neighbours import Cards, cards_of, keep_cards, neighbours
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.records import owned, write_json


@pytest.mark.parametrize(
    ("mine", "theirs", "apart"),
    [
        ("0", "1", True),
        ("0,1", "2, 3", True),
        ("0,1", "1", False),
        ("0", "00", False),
        ("", "1", False),
        ("0", "", False),
        ("GPU-1b2c", "GPU-77aa", False),
        ("0", "GPU-77aa", False),
        ("MIG-1", "MIG-2", False),
        ("0,-1", "1", False),
    ],
)
def test_cards_are_others_only_where_both_are_numbers_and_share_none(
    tmp_path: Path, mine: str, theirs: str, apart: bool
) -> None:
    with owned(tmp_path / "other"):
        write_json(tmp_path / "other" / "cards.json", {"visible": theirs})
        (found,) = neighbours(tmp_path, Cards(mine))
    assert (found.campaign, found.cards, found.apart) == ("other", theirs, apart)


@pytest.mark.parametrize("left", ["", "[]", "{}", "no JSON"])
def test_a_lab_that_left_no_word_of_its_cards_counts_as_on_ours(tmp_path: Path, left: str) -> None:
    with owned(tmp_path / "other"):
        if left:
            (tmp_path / "other" / "cards.json").write_text(left)
        assert [found.apart for found in neighbours(tmp_path, Cards("0"))] == [False]


@pytest.mark.parametrize(
    ("setup", "cards"), [(Setup(engine="sglang"), "3"), (Setup(runtime="docker", engine="sglang"), ""), (Setup(), "")]
)
def test_only_servers_of_the_local_runtime_heed_the_cards_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: Setup, cards: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert cards_of(setup).visible == cards
    with owned(tmp_path / "a"):
        keep_cards(RunFolder(tmp_path / "a"), setup)
        assert [found.cards for found in neighbours(tmp_path, Cards("0"))] == [cards]


def test_a_lab_is_no_neighbour_of_its_own_and_one_that_has_ended_is_none(tmp_path: Path) -> None:
    keep_cards(RunFolder(tmp_path / "ended"), Setup(engine="sglang"))
    with owned(tmp_path / "mine"):
        assert neighbours(tmp_path, Cards("0"), but="mine") == ()


@pytest.mark.parametrize(
    ("mine", "theirs", "apart"),
    [("", "PCI_BUS_ID", False), ("PCI_BUS_ID", "PCI_BUS_ID", True), ("", "", True), ("FASTEST_FIRST", "", True)],
)
def test_numbers_of_cards_that_count_in_another_order_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str, apart: bool
) -> None:
    servers = Setup(engine="sglang")
    for name, visible, order in (("other", "1", theirs), ("mine", "0", mine)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
        keep_cards(RunFolder(tmp_path / name), servers)
    with owned(tmp_path / "other"):
        assert [found.apart for found in neighbours(tmp_path, cards_of(servers))] == [apart]
