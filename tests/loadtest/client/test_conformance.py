"""The client against every shape the mock can play; the suite itself must be able to fail."""

from __future__ import annotations

import pytest

from app.engine.sim.shapes import BUILTIN
from loadtest.client.conformance import SHAPES, Check, check_client, told_ms
from loadtest.client.reply import has_text


@pytest.fixture(scope="module")
def checks(mock_url: str) -> dict[tuple[str, str], Check]:
    return {(c.shape, c.api): c for c in check_client(mock_url)}


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("shape", SHAPES)
def test_client_takes_each_shape_for_what_it_is(checks: dict[tuple[str, str], Check], shape: str, api: str) -> None:
    assert checks[shape, api].ok, checks[shape, api]


@pytest.mark.parametrize(
    ("ms", "told"), [(0.012, "12 us"), (0.0004, "0.4 us"), (0.9994, "999 us"), (1.0, "1.0 ms"), (512.34, "512.3 ms")]
)
def test_a_small_lateness_is_told_in_microseconds(ms: float, told: str) -> None:
    assert told_ms(ms) == told


def test_suite_covers_every_shape_of_the_mock() -> None:
    assert set(SHAPES) == set(BUILTIN)


def test_suite_finds_a_client_that_starts_its_clock_at_the_role_event(
    mock_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "loadtest.client.reply.has_text", lambda choice: has_text(choice) or "role" in (choice.get("delta") or {})
    )
    (check,) = check_client(mock_url, ["role_first"], ["chat"])
    assert not check.ok


def test_suite_finds_a_client_that_overlooks_reasoning(mock_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "loadtest.client.reply.has_text", lambda choice: bool((choice.get("delta") or choice).get("content"))
    )
    (check,) = check_client(mock_url, ["reasoning_content"], ["chat"])
    assert not check.ok
