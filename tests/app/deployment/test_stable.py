"""Promotion by force without a daemon: what it needs, and the trace it leaves in every record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.deployment import stable
from app.deployment.stable import Promotion, StableHistory, promote
from app.errors import UsageError
from app.image.identity import Identity
from app.records import read_json, write_json
from app.settings import Deployment

IDENTITY = Identity("v1", "pinned", "sim", "triton", "k", "/k.py", "a" * 64, "b" * 64, "0.5.17", None, 120, ("c",))


@dataclasses.dataclass
class Desk:
    """Stands for the daemon: keeps what would be tagged and labelled."""

    folder: Path
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    pushed: list[Promotion] = dataclasses.field(default_factory=list)

    def stamp_as(self, image: str, tag: str, labels: Mapping[str, str]) -> str:
        self.labels |= labels
        return tag

    def push(self, _: StableHistory, promotion: Promotion) -> None:
        self.pushed.append(promotion)

    def judge(self, decision: str) -> None:
        kernel = {"sha256": IDENTITY.kernel_sha256, "selector": IDENTITY.selector}
        variants = [{"variant": "v1", "decision": decision}]
        write_json(self.folder / "runs" / "one" / "verdict.json", {"simulated": True, "variants": variants})
        write_json(self.folder / "runs" / "one" / "manifest.json", {"kernels": {"v1": kernel}})

    def promote(self, **options: Any) -> Promotion:
        places: dict[str, Any] = {"runs": self.folder / "runs", "state": self.folder, "ledger": self.folder / "E.md"}
        return promote(Deployment(), "v1", "sim", **places, **options)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path)
    monkeypatch.setattr(stable, "built_identity", lambda *_: IDENTITY)
    monkeypatch.setattr(stable, "stamp_as", made.stamp_as)
    monkeypatch.setattr(StableHistory, "push", lambda self, promotion: made.push(self, promotion))
    return made


def test_force_against_a_verdict_leaves_its_trace_everywhere(desk: Desk) -> None:
    desk.judge("reject")
    entry = desk.promote(force=True, reason="in a\x1b[2J hurry")
    assert (entry.forced, entry.decision, entry.tag[-7:]) == (True, "reject", "-forced")
    assert desk.pushed == [entry]
    assert read_json(desk.folder / "runs" / "one" / "forced.json") == [dataclasses.asdict(entry)]
    assert desk.labels["io.decode-ab.forced.decision"] == "reject"
    assert desk.labels["io.decode-ab.forced.reason"] == r"in a\x1b[2J hurry"
    assert "Verdict at that time: reject (campaign one)" in (desk.folder / "E.md").read_text()


def test_force_without_a_campaign_says_so(desk: Desk) -> None:
    assert desk.promote(force=True, reason="no card here").decision == "none"
    assert desk.labels["io.decode-ab.forced.decision"] == "none"


def test_an_accepted_variant_is_not_marked_as_forced(desk: Desk) -> None:
    desk.judge("accept")
    entry = desk.promote(force=True, reason="not needed")
    assert (entry.forced, entry.campaign, entry.decision) == (False, "one", "accept")
    assert desk.labels == {}
    assert not (desk.folder / "runs" / "one" / "forced.json").exists()


@pytest.mark.parametrize("options", [{}, {"force": True}, {"force": True, "reason": "  "}])
def test_neither_a_rejected_variant_nor_force_without_reason_passes(desk: Desk, options: dict[str, Any]) -> None:
    desk.judge("reject")
    with pytest.raises(UsageError):
        desk.promote(**options)
    assert desk.pushed == []


@pytest.mark.parametrize(
    ("decision", "engine", "said"),
    [
        ("", "sglang", "no campaign measured this kernel"),
        ("accept", "sglang", "one: SIMULATED accept; a SIMULATED verdict is for --engine sim alone"),
        ("reject", "sim", "one: SIMULATED reject"),
    ],
)
def test_a_verdict_that_is_missing_or_of_another_engine_is_named_before_any_daemon_is_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, decision: str, engine: str, said: str
) -> None:
    monkeypatch.setattr(stable, "built_identity", lambda *_: pytest.fail("asked for the image"))
    if decision:
        desk.judge(decision)
    with pytest.raises(UsageError, match=rf"of engine {engine} \({said}\)"):
        promote(Deployment(), "v1", engine, runs=desk.folder / "runs")


def test_an_imported_campaign_is_no_ruling_on_a_kernel(desk: Desk) -> None:
    desk.judge("accept")
    write_json(desk.folder / "runs" / "one" / "manifest.json", {"imported": True})
    assert desk.promote(force=True, reason="no card here").decision == "none"


def test_a_history_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    old = {"variant": "v1", "tag": "t", "kernel_sha256": "a", "campaign": None, "reason": "r", "at": "then"}
    write_json(tmp_path / "stable-sim.json", {"schema": 1, "history": [old], "moving": ""})
    assert StableHistory(Deployment(), "sim", tmp_path).entries()[0].forced
