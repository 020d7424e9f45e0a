from __future__ import annotations

import math

import pytest

from app.report.wording import counted, interval, listed, number, p_value, predicted_range, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [(-7.149, "-7.1"), (2.0, "+2.0"), (-0.04, "0.0"), (1823.4, "+1,823.4"), (None, "-"), (math.nan, "-")],
)
def test_signed_figure(value: float | None, text: str) -> None:
    assert signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (845.04, "845.0"), (11.204, "11.20"), (math.inf, "-"), (None, "-")]
)
def test_figure_has_sensible_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("p", "text"), [(0.00012, "<0.001"), (0.04, "0.040"), (None, "-")])
def test_p_value(p: float | None, text: str) -> None:
    assert p_value(p) == text


def test_interval_needs_both_ends() -> None:
    assert interval(-1.0, 2.04) == "-1.0 to +2.0"
    assert interval(None, 2.0) == "-"


@pytest.mark.parametrize(("items", "text"), [([], ""), ([1], "1"), ([1, 8], "1 and 8"), ([1, 8, 96], "1, 8 and 96")])
def test_list_in_words(items: list[int], text: str) -> None:
    assert listed(items) == text


def test_counted_noun() -> None:
    assert (counted(1, "block"), counted(2, "block"), counted(3, "concurrency")) == (
        "1 block",
        "2 blocks",
        "3 concurrencies",
    )


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (15.0, 25.0, "+15 to +25"),
        (-0.5, 0.5, "-0.5 to +0.5"),
        (-5.0, 0.0, "-5 to 0"),
        (-0.25, 0.25, "-0.25 to +0.25"),
        (-2.1736, 0.4142, "-2.2 to +0.4"),
    ],
)
def test_a_prediction_is_shown_as_it_was_written(low: float, high: float, text: str) -> None:
    assert predicted_range(low, high) == text
