from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app.records import read_json, write_json
from app.report import write_reports
from app.report.beside import read_beside, readings_grid
from app.report.campaign_view import read_campaign


@pytest.fixture
def sampled(folder: Path, tmp_path: Path) -> Path:
    """A campaign in which one start kept readings of its servers and of a card."""
    copied = Path(shutil.copytree(folder, tmp_path / folder.name))
    path = next(copied.glob("blocks/000/start-00-*")) / "load.json"
    load = dict(read_json(path))
    for mark in load["levels"]:
        at = (mark["window_start_ns"] + mark["window_end_ns"]) // 2
        values = {"num_running_reqs": mark["concurrency"], "num_queue_reqs": 0}
        sample = {"role": "decode", "at_ns": at, "took_ns": 10**6, "values": values}
        load.setdefault("server", {"samples": []})["samples"] += [sample, sample | {"error": "refused", "values": {}}]
        card = {"at_ns": at, "index": 0, "sm_mhz": 1980.0, "memory_mhz": 2619.0, "power_w": 600.0, "reasons": 0}
        load.setdefault("gpu", []).append(card | {"temperature_c": 50.0 + mark["concurrency"]})
    write_json(path, load)
    return copied


def test_readings_inside_the_windows_are_put_together_by_concurrency(sampled: Path) -> None:
    grid = readings_grid(read_beside(read_campaign(sampled)))
    found = {row[:2]: row[2] for row in grid.rows}
    assert found["decode, running requests", "4"] == "4.0"
    assert found["GPU 0, temperature, °C", "2"] == "52.0"
    assert len(grid.columns) == 3


def test_a_campaign_without_readings_draws_none(folder: Path) -> None:
    assert read_beside(read_campaign(folder)) == ()


def test_the_report_draws_running_requests_and_clocks_beside_the_load(sampled: Path) -> None:
    page = write_reports(sampled).html.read_text()
    assert "decode, running requests through block 1" in page
    assert "SM clock, MHz through block 1" in page


def test_the_report_sets_the_kernels_own_change_beside_the_effect(sampled: Path) -> None:
    verdict = json.loads((sampled / "verdict.json").read_text())
    level = next(x for v in verdict["variants"] if v["variant"] == "v1" for x in v["levels"])
    check = {
        "variant": "v1",
        "concurrency": level["concurrency"],
        "predicted_low_pct": 2.0,
        "predicted_high_pct": 5.0,
        "measured_low_pct": -17.0,
        "measured_high_pct": -15.0,
        "agreement": "opposite sign",
        "source": "a <b>profile</b>",
    }
    write_json(sampled / "amdahl.json", [check])
    page = write_reports(sampled).html.read_text()
    assert "Can the kernel explain it?" in page
    assert "DISAGREES: opposite sign" in page
    assert "a &lt;b&gt;profile&lt;/b&gt;" in page


def test_the_report_says_how_many_stream_shapes_the_client_failed(sampled: Path) -> None:
    write_json(sampled / "conformance.json", {"shapes": 84, "ok": 84, "wrong": []})
    assert "stream shapes that the client failed" in write_reports(sampled).html.read_text()
