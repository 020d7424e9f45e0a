"""Orders survive their file, and refuse what cannot be run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import RecordsError, UsageError
from loadtest.order import StartOrder, Workload
from loadtest.plan import Lengths, WindowRules


def order(**changes: object) -> StartOrder:
    values: dict[str, object] = {
        "block": 1,
        "start": 2,
        "variant": "v1",
        "control": "pinned",
        "concurrencies": (8, 1),
        "prompt_seed": "7/prompts/1",
        "router_url": "http://r:1",
        "out": Path("o"),
    }
    return StartOrder(**(values | changes))  # type: ignore[arg-type]


def test_order_is_restored_from_its_file(tmp_path: Path) -> None:
    given = order(lengths=Lengths(10, 20), window=WindowRules(window_s=3), workload=Workload("dataset", 0, Path("d")))
    given.write(tmp_path / "order.json")
    assert StartOrder.read(tmp_path / "order.json") == replace(given, out=tmp_path / "o")


def test_order_names_its_folder_from_where_it_lies(tmp_path: Path) -> None:
    order(out=Path()).write(tmp_path / "order.json")
    (tmp_path / "order.json").rename(moved := tmp_path.with_name("moved.json"))
    assert StartOrder.read(moved).out == tmp_path.parent


def test_order_turns_engine_seconds_into_wall_seconds() -> None:
    assert order(time_scale=10.0).wall_s(60) == 6


@pytest.mark.parametrize("levels", [(), (0, 1), (4, 4)])
def test_order_refuses_levels_that_cannot_be_visited(levels: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="concurrencies"):
        order(concurrencies=levels)


@pytest.mark.parametrize("change", [{"schema": 9}, {"surprise": 1}, {"lengths": {"prompt_tokens": 1}}])
def test_order_of_another_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordsError):
        StartOrder.from_json(order().to_json() | change)


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_unreadable_order_names_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "order.json"
    path.write_text(text)
    with pytest.raises(RecordsError, match=r"order"):
        StartOrder.read(path)


@pytest.mark.parametrize(("kind", "spread", "turns"), [("dataset", 0.0, 1), ("uniform", 1.5, 1), ("fixed", 0.0, 0)])
def test_workload_refuses_what_cannot_be_drawn(kind: str, spread: float, turns: int) -> None:
    with pytest.raises(UsageError):
        Workload(kind, spread, None, None, turns)  # type: ignore[arg-type]


def test_order_json_is_plain_data() -> None:
    assert json.loads(json.dumps(order().to_json()))["concurrencies"] == [8, 1]
