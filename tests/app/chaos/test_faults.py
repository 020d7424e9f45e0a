"""Which faults there are: every phase, every service, and what of each must be heard."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.chaos.faults import SERVICES, container_kills, kills
from app.chaos.stage import PHASES, Fault


@pytest.mark.parametrize("make", [kills, container_kills])
@pytest.mark.parametrize("long", [False, True])
def test_every_phase_and_every_service_is_tried(make: Callable[[bool], list[Fault]], long: bool) -> None:
    found = make(long)
    assert {f.phase for f in found} == set(PHASES)
    assert {s for s in SERVICES if any(f.kind.startswith(s) for f in found)} == set(SERVICES)
    assert len({f.kind for f in found}) == len(found)


def test_the_long_form_kills_every_service_in_every_phase() -> None:
    assert len(container_kills(long=True)) == len(SERVICES) * len(PHASES)
    assert {f.phase for f in container_kills(long=True) if not f.must_say} == {"between"}
