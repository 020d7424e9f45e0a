"""Every reporting task's --json: one JSON text on standard output, with keys that scripts may rely on."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import tasks
from app.campaign.runs import RunFolder
from app.console import campaigns as console
from app.console import changes, operations, planning
from app.doctor import examination
from app.doctor.finding import ok
from app.gate import named
from app.image.identity import Identity
from app.image.listing import ImageRow
from app.kernel.variants import TABLE_COLUMNS
from app.records import read_json, write_json
from app.stack.evidence import Evidence
from loadtest.cells import write_cells
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan

REPORTING = {"variants", "check", "images", "verify", "ledger", "plan", "report", "doctor"}
NAME = "20261102-090501"


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A judged campaign in runs/ of the working folder."""
    monkeypatch.chdir(tmp_path)
    plan = make_plan()
    cells = draw_cells(plan)
    folder = make_campaign(tmp_path / "runs" / NAME, plan, cells)
    kernels = {variant: {"sha256": variant, "selector": "triton"} for variant in plan.variants}
    write_json(folder / "manifest.json", read_json(folder / "manifest.json") | {"kernels": kernels})
    for start in (s for block in range(plan.blocks) for s in plan.starts(block)):
        place = RunFolder(folder).start(start)
        write_cells(place / "cells.csv", [c for c in cells if (c.block, c.start) == (start.block, start.index)])
        write_json(place / "proof.json", read_json(place / "proof.json") | {"kernel_sha256": start.variant})
    return folder


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_every_reporting_task_and_no_other_has_a_json_form() -> None:
    having = {name for name in tasks.ns.task_names if "json" in inspect.signature(tasks.ns[name].body).parameters}
    assert having == REPORTING


def test_variants(capsys: pytest.CaptureFixture[str]) -> None:
    changes.show_variants(True)
    assert {tuple(entry) for entry in printed(capsys)} == {TABLE_COLUMNS}


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    named.run_check("flashinfer", as_json=True)
    assert {"schema", "variant", "control", "target", "buildable", "findings", "configs", "geometry"} <= set(
        printed(capsys)
    )


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "examine", lambda host: {"python": ok("fine")})
    examination.show_doctor("sim", "local", True)
    found = printed(capsys)
    assert set(found) == {"schema", "engine", "runtime", "ready", "checks"}
    assert set(found["checks"][0]) == {"check", "status", "found", "remedy"}


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    pilot = planning.pilot_of("latest", "0.7", "1,96", "mirrored")
    planning.show_plan(pilot, "3", "0.9", "", 2, planning.pace(60, 70), True)
    assert {"source", "design", "effect_pct", "power", "blocks", "hours", "choices"} <= set(printed(capsys))


def test_report(capsys: pytest.CaptureFixture[str], campaign: Path) -> None:
    console.show_campaign(NAME, "1,4", "", False, True)
    said = printed(capsys)
    written = json.loads((campaign / "summary.json").read_text(encoding="utf-8"))
    assert {key: said[key] for key in written} == written
    assert set(said) - set(written) == {"curves", "kernel_shares"}
    assert {curve["answer"]["end"] for curve in said["curves"]} == {4}


def test_ledger(capsys: pytest.CaptureFixture[str], campaign: Path) -> None:
    console.enter_ledger(NAME, True)
    said = printed(capsys)
    assert set(said) == {"schema", "campaign", "simulated", "ledger", "entry", "variants"}
    assert said["entry"] in Path(said["ledger"]).read_text(encoding="utf-8")
    first = said["variants"][0]
    assert (first["variant"], first["decision"], first["prediction_outcome"]) == ("v1", "reject", "refuted")


def test_images(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row = ImageRow(
        "decode-ab:v1", "v1", "triton", "ab" * 6, "0.5.17", "3.6.0", 10, "2026-11-02 09:05", ("decode",), True
    )
    monkeypatch.setattr(operations, "list_images", lambda settings: [row])
    operations.show_images(True)
    (image,) = printed(capsys)["images"]
    assert (image["tag"], image["running"], image["stable"]) == ("decode-ab:v1", ["decode"], True)
    assert list(image) == list(ImageRow.__slots__)


def test_verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity(
        "v1", "pinned", "sim", "triton", "k", "/k.py", "a" * 64, "b" * 64, "0.5.17", None, 120, ("(16,8,2)",)
    )
    found = Evidence("decode", identity, "sha256:c", "a" * 64, "triton", [{"num_warps": 8}])

    class Proven:
        def verify(self) -> list[Evidence]:
            return [found]

    monkeypatch.setattr(operations, "_lifecycle", Proven)
    operations.show_verify(True)
    (service,) = printed(capsys)["services"]
    assert set(service) == {"service", "image_id", "identity", "kernel_sha256", "selector", "cache"}
    assert service["identity"]["variant"] == "v1"
