from __future__ import annotations

from dataclasses import replace

import pytest

from app.console.changes import from_control, from_pristine, show_diff
from app.errors import UsageError
from app.kernel.variants import Change, load_variants

REGISTRY = load_variants()


def changed(text: str) -> list[str]:
    """Changed lines of a diff, stripped."""
    return [" ".join(line.split()) for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_against_its_control_only_the_variants_own_change_shows() -> None:
    text = from_control(REGISTRY.get("v1"), REGISTRY, "")
    assert [line[0] for line in changed(text)] == ["-", "+"]
    assert ["num_warps=4" in changed(text)[0], "num_warps=8" in changed(text)[1]] == [True, True]


def test_against_pristine_a_replaced_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_diff("v1", "", "pristine")
    assert capsys.readouterr().out.startswith("# v1 replaces the whole of ")


@pytest.mark.parametrize("name", ["aa", "upstream"])
def test_a_variant_of_its_controls_file_says_so(name: str) -> None:
    assert f"{name} and its control" in from_control(REGISTRY.get(name), REGISTRY, "")


def test_a_control_that_is_reached_by_another_selector_is_told() -> None:
    assert from_control(REGISTRY.get("upstream"), REGISTRY, "").startswith("# flashinfer runs by selector flashinfer")


def test_a_variant_that_changes_nothing_leaves_the_file_as_it_is() -> None:
    assert "as it is" in from_pristine(replace(REGISTRY.get("upstream"), change=Change()), "")


@pytest.mark.parametrize(
    ("name", "against", "says"), [("baseline", "control", "has no control"), ("v1", "v2", "known")]
)
def test_what_cannot_be_compared_is_refused(name: str, against: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        show_diff(name, "", against)
