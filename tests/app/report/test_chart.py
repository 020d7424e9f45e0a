from __future__ import annotations

import math

import pytest

from app.report.chart import Axis, Panel, padded, tag


def test_axis_maps_ends_to_pixels() -> None:
    axis = Axis(0, 10, 100, 300)
    assert (axis(0), axis(5), axis(10)) == (100, 200, 300)


def test_log_axis_puts_equal_ratios_at_equal_distances() -> None:
    axis = Axis(1, 100, 0, 200, log=True)
    assert axis(10) == pytest.approx(100)


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 10, 0, 1), (0, 2, 4, 6, 8, 10)),
        (Axis(-0.9, 1.1, 0, 1), (-0.5, 0, 0.5, 1)),
        (Axis(1, 1000, 0, 1, log=True), (1, 10, 100, 1000)),
        (Axis(12, 38, 0, 1, log=True), (15, 20, 25, 30, 35)),
    ],
)
def test_ticks_are_round_and_inside(axis: Axis, ticks: tuple[float, ...]) -> None:
    assert axis.ticks(4) == pytest.approx(ticks)


@pytest.mark.parametrize("values", [[], [math.nan], [3.0], [0.0, 0.0]])
def test_range_of_an_axis_is_never_empty(values: list[float]) -> None:
    low, high = padded(values)
    assert low < high


def test_words_and_attributes_are_escaped() -> None:
    assert tag("text", "<b>", class_='"x"') == '<text class="&#34;x&#34;">&lt;b&gt;</text>'


def test_line_breaks_where_a_value_is_missing() -> None:
    panel = Panel(Axis(0, 3, 0, 3), Axis(0, 1, 1, 0), 3, 1)
    panel.line([(0, 0), (1, math.nan), (2, 1), (3, 1)], "curve")
    assert 'd="M0.0 1.0M2.0 0.0L3.0 0.0"' in panel.parts[0]
