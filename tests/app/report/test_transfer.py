"""What the servers counted of KV transfers is put together by variant and concurrency."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.records import read_json, write_json
from app.report import write_reports
from app.report.campaign_view import read_campaign
from app.report.transfer import COLUMNS, Grown, read_transfers, transfer_grid

Change = Callable[[Callable[[dict[str, Any]], None]], Path]
NAMES = ("latency_ms", "total_mb", "bootstrap_ms", "alloc_ms")
# Of each request, at prefill and at decode, which moves nothing itself.
EACH = {"prefill": (20.0, 512.0, 8.0, 0.0), "decode": (0.0, 0.0, 1.0, 3.0)}


def counted(role: str, requests: int) -> dict[str, float]:
    """The metrics of a server after so many requests, as SGLang exports them: nothing before the first."""
    values = dict[str, float]()
    for name, each in zip(NAMES, EACH[role], strict=True):
        if requests and (role == "prefill" or name in ("bootstrap_ms", "alloc_ms")):
            values |= {f"kv_transfer_{name}_sum": each * requests, f"kv_transfer_{name}_count": requests}
    return values


def sample(role: str, at_ns: int, values: Mapping[str, float]) -> dict[str, Any]:
    return {"role": role, "at_ns": at_ns, "took_ns": 10**6, "values": dict(values)}


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Change:
    """A copy of the campaign, each of whose load records a function has changed."""

    def change(by: Callable[[dict[str, Any]], None]) -> Path:
        copied = Path(shutil.copytree(folder, tmp_path / folder.name))
        for path in copied.glob("blocks/*/start-*/load.json"):
            load = dict(read_json(path))
            by(load)
            write_json(path, load)
        return copied

    return change


def transfers(load: dict[str, Any]) -> None:
    """Ten requests through each window but that of C=2, which none came into; five more before each."""
    requests, samples = 0, load["server"]["samples"]
    for mark in load["levels"]:
        inside = 0 if mark["concurrency"] == 2 else 10
        begin, end = mark["window_start_ns"], mark["window_end_ns"]
        for role in EACH:
            samples.append(sample(role, begin + 10**6, {"num_running_reqs": 1.0} | counted(role, requests)))
            samples.append(sample(role, end + 10**6, {"num_running_reqs": 1.0} | counted(role, requests + inside)))
        refused = sample("prefill", end, {}) | {"error": "refused"}
        samples.append(refused)
        requests += inside + 5


def test_growth_from_edge_to_edge_of_the_windows_gives_means_by_variant_and_concurrency(
    changed: Change,
) -> None:
    view = read_campaign(changed(transfers))
    grid = transfer_grid(read_transfers(view))
    rows = {row[:2]: dict(zip(COLUMNS, row, strict=True)) for row in grid.rows}
    assert set(rows) == {(name, str(level)) for name in view.variants for level in (1, 2, 4)}
    starts = sum(record.start.variant == "v1" for record in view.starts)
    figures = ("- / -", str(10 * starts), "512.0", "20.00", "25.00", "8.00 / 1.00", "0.00 / 3.00", "0 / 0")
    assert rows["v1", "4"] == dict(zip(COLUMNS, ("v1", "4", *figures), strict=True))


def test_a_window_without_a_transfer_shows_none(changed: Change) -> None:
    grid = transfer_grid(read_transfers(read_campaign(changed(transfers))))
    assert {row[2:] for row in grid.rows if row[1] == "2"} == {("- / -", *"----", "- / -", "- / -", "0 / 0")}


def test_the_report_shows_transfers_beside_the_readings(
    changed: Change,
) -> None:
    written = write_reports(changed(transfers))
    page, markdown = written.html.read_text(), written.markdown.read_text()
    assert page.index("Readings of servers and cards") < page.index("KV moved from prefill to decode")
    assert '<td class="n">25.00</td>' in page
    assert "KV moved from prefill to decode" in markdown
    assert "| transfers | MiB | latency, ms | GiB/s |" in markdown
    assert not re.search(r"\b[MG]B\b(?! and GB|;)", page)
    assert " | 25.00 | " in markdown


def test_servers_that_tell_of_no_transfer_get_no_table(
    changed: Change,
) -> None:
    def single(load: dict[str, Any]) -> None:
        at = load["levels"][0]["window_start_ns"]
        load["server"]["samples"] = [
            sample("decode", at + i, {"num_running_reqs": 1.0, "num_transfer_failed_reqs_total": 0.0}) for i in (0, 9)
        ]

    folder = changed(single)
    assert transfer_grid(read_transfers(read_campaign(folder))).rows == ()
    page = write_reports(folder).html.read_text()
    assert "Readings of servers and cards" in page
    assert "KV moved" not in page


def test_a_server_started_anew_within_a_window_or_read_once_counts_for_nothing(
    changed: Change,
) -> None:
    def anew(load: dict[str, Any]) -> None:
        begin, end = (load["levels"][0][f"window_{edge}_ns"] for edge in ("start", "end"))
        pairs = ((begin, 40), (end, 3))
        load["server"]["samples"] = [sample("prefill", at, counted("prefill", n)) for at, n in pairs]
        load["server"]["samples"].append(sample("decode", begin, counted("decode", 7)))

    read = read_transfers(read_campaign(changed(anew)))
    assert read
    assert [one for one in read if one.values] == []


def test_failed_transfers_are_told_by_the_side_that_counted_them() -> None:
    read = [Grown("v1", 8, "decode", {"num_transfer_failed_reqs_total": n}) for n in (2.0, 1.0)]
    assert transfer_grid(read).rows == (("v1", "8", "- / -", *"----", "- / -", "- / -", "- / 3"),)


def ranked(load: dict[str, Any]) -> None:
    """Two ranks of prefill and one of decode, each with the same counts."""
    transfers(load)
    for one in load["server"]["samples"]:
        ranks = 2 if one["role"] == "prefill" else 1
        one["values"] = {k: ranks * v for k, v in one["values"].items()} | {"kv_transfer_ranks": ranks}


def test_what_is_summed_over_ranks_says_over_how_many_and_keeps_the_means_of_one(changed: Change) -> None:
    view = read_campaign(changed(ranked))
    (row,) = (r for r in transfer_grid(read_transfers(view)).rows if r[:2] == ("v1", "4"))
    told, starts = dict(zip(COLUMNS, row, strict=True)), sum(record.start.variant == "v1" for record in view.starts)
    assert (told["ranks"], told["transfers"], told["MiB"]) == ("2 / 1", str(2 * 10 * starts), "512.0")


def test_a_rank_that_tells_of_its_first_transfer_late_shows() -> None:
    read = [Grown("v1", 8, "prefill", {}, ranks) for ranks in (1, 4, 4, 0)]
    assert transfer_grid(read).rows[0][COLUMNS.index("ranks")] == "1, 4 / -"
