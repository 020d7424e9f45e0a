"""Promote and roll back on a real daemon: only an accepting verdict on the same kernel moves `stable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.deployment.stable import Promotion, StableHistory, promote, rollback
from app.errors import UsageError
from app.image.build import BuiltImage, repository
from app.image.listing import list_images
from app.records import read_json, write_json
from app.settings import Deployment

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


class Desk:
    """The folders that one test's promotions use."""

    def __init__(self, settings: Deployment, folder: Path) -> None:
        self.settings, self.runs, self.state, self.ledger = settings, folder / "runs", folder / "state", folder / "E.md"

    def judge(self, image: BuiltImage, decision: str, name: str = "one", **other: Any) -> None:
        kernel = {"sha256": image.identity.kernel_sha256, "selector": image.identity.selector} | other.pop("kernel", {})
        variant = image.identity.variant
        verdict = {"simulated": True, "variants": [{"variant": variant, "decision": decision}]} | other
        write_json(self.runs / name / "verdict.json", verdict)
        write_json(self.runs / name / "manifest.json", {"kernels": {variant: kernel}})

    def promote(self, variant: str, **options: Any) -> Promotion:
        return promote(self.settings, variant, "sim", runs=self.runs, state=self.state, ledger=self.ledger, **options)

    def rollback(self) -> Promotion:
        return rollback(self.settings, "sim", self.state)


@pytest.fixture
def desk(built: dict[str, BuiltImage], settings: Deployment, tmp_path: Path) -> Desk:
    return Desk(settings, tmp_path)


def stable_is(api: Any, settings: Deployment, variant: str) -> bool:
    """Whether `stable` names the very image that the variant's tag names."""
    tagged = [api.inspect_image(f"{repository(settings, 'sim')}:{name}")["Id"] for name in ("stable", variant)]
    return len({*tagged}) == 1


def test_promote_refuses_without_a_verdict(desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"v2 has no accepting verdict .*\(no campaign measured this kernel\)"):
        desk.promote("v2")


@pytest.mark.parametrize(
    ("decision", "other"),
    [
        ("reject", {}),
        ("undecided", {}),
        ("accept", {"simulated": False}),
        ("accept", {"interim": True}),
        ("accept", {"kernel": {"sha256": "0" * 64}}),
        ("accept", {"kernel": {"selector": "flashinfer"}}),
    ],
    ids=["rejected", "undecided", "other engine", "interim", "other kernel", "other selector"],
)
def test_promote_refuses_what_no_verdict_covers(
    desk: Desk, built: dict[str, BuiltImage], decision: str, other: dict[str, Any]
) -> None:
    desk.judge(built["v2"], decision, **other)
    with pytest.raises(UsageError, match="has no accepting verdict"):
        desk.promote("v2")


def test_promote_refuses_when_a_later_campaign_rejected(desk: Desk, built: dict[str, BuiltImage]) -> None:
    import os

    desk.judge(built["v2"], "accept", "one")
    desk.judge(built["v2"], "reject", "two")
    os.utime(desk.runs / "one" / "verdict.json", (1, 1))
    with pytest.raises(UsageError, match="one: SIMULATED accept, two: SIMULATED reject"):
        desk.promote("v2")


def test_promote_moves_stable_and_rollback_restores_it(api: Any, desk: Desk, built: dict[str, BuiltImage]) -> None:
    desk.judge(built["pinned"], "accept", "one")
    desk.judge(built["v2"], "accept", "two")
    desk.promote("pinned")
    assert desk.promote("v2").campaign == "two"
    assert stable_is(api, desk.settings, "v2")
    assert [row.variant for row in list_images(desk.settings) if row.stable] == ["v2"]
    assert desk.rollback().variant == "pinned"
    assert stable_is(api, desk.settings, "pinned")
    with pytest.raises(UsageError, match="no stable image before"):
        desk.rollback()


def test_promote_twice_is_one_entry(desk: Desk, built: dict[str, BuiltImage]) -> None:
    desk.judge(built["v2"], "accept")
    desk.promote("v2")
    desk.promote("v2")
    assert len(StableHistory(desk.settings, "sim", desk.state).entries()) == 1


def test_forced_promotion_needs_a_reason_and_is_entered_in_the_ledger(desk: Desk) -> None:
    with pytest.raises(UsageError, match="needs --reason"):
        desk.promote("v1", force=True)
    desk.promote("v1", force=True, reason="the other host is down")
    assert "the other host is down" in desk.ledger.read_text()


def test_forced_promotion_leaves_its_trace_in_history_campaign_and_image(
    api: Any, desk: Desk, built: dict[str, BuiltImage]
) -> None:
    desk.judge(built["v1"], "reject", "one")
    desk.promote("v1", force=True, reason="the other host\x1b[2J is down")
    entry = StableHistory(desk.settings, "sim", desk.state).entries()[-1]
    assert (entry.forced, entry.decision) == (True, "reject")
    assert read_json(desk.runs / "one" / "forced.json")[0]["tag"] == entry.tag
    image = api.inspect_image(f"{repository(desk.settings, 'sim')}:stable")
    assert image["Config"]["Labels"]["io.decode-ab.forced.reason"] == r"the other host\x1b[2J is down"
    tagged = api.inspect_image(f"{repository(desk.settings, 'sim')}:v1")
    assert image["RootFS"]["Layers"] == tagged["RootFS"]["Layers"]
    assert [row.cells()[-1] for row in list_images(desk.settings) if row.stable] == ["stable, by force"]


def test_command_cut_short_before_the_tag_moved_is_finished_by_the_next(
    api: Any, desk: Desk, built: dict[str, BuiltImage]
) -> None:
    for name in ("pinned", "v2"):
        desk.judge(built[name], "accept", name)
        desk.promote(name)
    file = desk.state / "stable-sim.json"
    # A rollback that wrote its record and was killed before it moved the tag.
    record = read_json(file)
    file.write_text(json.dumps(record | {"history": record["history"][:1], "moving": "pop"}))
    assert stable_is(api, desk.settings, "v2")
    assert desk.rollback().variant == "pinned"
    assert stable_is(api, desk.settings, "pinned")
