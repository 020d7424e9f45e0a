"""Figures in prose are those of the committed tables they are said to come from."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import pytest

from app.engine.sglang.served import Served
from app.kernel.variants import load_variants
from app.report import slow_blocks
from app.report.campaign_view import read_campaign

ROOT = Path(__file__).resolve().parents[1]
ALONE = ROOT / "docs" / "results" / "h200_decode_alone"
TWO_RANKS = ALONE.with_name("h200_tp2")
RANK = ALONE.with_name("h200_rank4")
# By control, where the pair was measured.
PAIRS = {"pinned": "fast-v1-v2-pinned", "upstream": "fast-upstream", "flashmla": "fast-flashmla"}
LEVELS = (1, 8, 48, 64, 80, 96)


def rows_of(page: str, first: str) -> list[list[str]]:
    """The rows of the table whose head begins so, cell by cell."""
    lines = page[page.index(f"| {first}") :].splitlines()[2:]
    table = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def levels(pair: str, variant: str, folder: Path = ALONE) -> list[float]:
    with (folder / pair / "levels.csv").open(newline="") as file:
        return [float(row["tokens_per_s"]) for row in csv.DictReader(file) if row["variant"] == variant]


def cells(pair: str, folder: Path = ALONE) -> dict[tuple[int, str, int], float]:
    with (folder / pair / "cells.csv").open(newline="") as file:
        found = csv.DictReader(file)
        return {(int(r["block"]), r["variant"], int(r["concurrency"])): float(r["tokens_per_s"]) for r in found}


@pytest.mark.parametrize(
    ("row", "folder", "pair", "variant"),
    [
        (0, ALONE, "fast-upstream", "upstream"),
        (1, ALONE, "fast-upstream", "fast"),
        (2, ALONE, "fast-flashmla", "flashmla"),
        (3, ALONE, "fast-flashmla", "fast"),
        (4, RANK, "fast-flashmla", "flashmla"),
        (5, RANK, "fast-flashmla", "fast"),
    ],
)
def test_the_readmes_first_results_are_the_campaigns(row: int, folder: Path, pair: str, variant: str) -> None:
    told = rows_of((ROOT / "README.md").read_text(), "SGLang on one H200")[row][1:]
    assert told == [f"{value:,.0f}" for value in levels(pair, variant, folder)]


def test_the_table_of_rates_is_that_of_the_levels() -> None:
    pair = ""
    for name, *told in rows_of((ROOT / "docs/results/README.md").read_text(), "tok/s, geometric mean of the blocks"):
        variant = re.findall(r"`(\w+)`", name)[0]
        pair = PAIRS.get(variant, pair)
        assert told == [f"{value:,.0f}" for value in levels(pair, variant)], name


@pytest.mark.parametrize(("pair", "variant"), [(pair, pair.rpartition("-")[2]) for pair in PAIRS.values()])
def test_the_rates_of_the_levels_are_geometric_means_of_the_blocks(pair: str, variant: str) -> None:
    found = cells(pair)
    by_level = [[rate for (_, v, c), rate in found.items() if (v, c) == (variant, level)] for level in LEVELS]
    assert levels(pair, variant) == pytest.approx([geometric_mean(rates) for rates in by_level], abs=1e-3)
    assert "geometric mean of four blocks" in (ROOT / "README.md").read_text()


def check_changes(page: str, folder: Path) -> None:
    for name, *told in rows_of(page, "change, %, block by block, C = | 1"):
        variant, control = re.findall(r"`(\w+)`", name)
        found = cells(PAIRS[control], folder)
        blocks = sorted({block for block, *_ in found})
        for level, text in zip(LEVELS, told, strict=True):
            effects = [100 * (found[b, variant, level] / found[b, control, level] - 1) for b in blocks]
            assert [float(part) for part in text.split(",")] == pytest.approx(
                effects, abs=0.501 if control == "upstream" else 0.051
            )


def test_the_changes_block_by_block_are_those_of_the_cells() -> None:
    check_changes((ROOT / "docs/results/README.md").read_text(), ALONE)


def test_what_is_said_of_all_starts_and_windows_holds_in_their_table() -> None:
    with (ALONE / "starts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    starts = {(r["campaign"], r["block"], r["start"]): r for r in rows}
    triton = [r for r in starts.values() if r["variant"] != "flashmla"]
    assert (len(rows), len(starts), len(triton)) == (228, 38, 31)
    assert {(r["code_as_predicted"], r["compiled_after_start"]) for r in triton} == {("True", "0")}
    *most, farthest = sorted(rows, key=lambda r: abs(float(r["client_over_server_pct"])))
    assert max(abs(float(r["client_over_server_pct"])) for r in most) <= 0.96
    assert (farthest["variant"], farthest["client_over_server_pct"]) == ("upstream", "-1.587")
    assert max(float(r["loop_lag_p99_ms"]) for r in rows) <= 3.6
    assert sum(float(r["window_s"]) < 3.2 for r in rows) == 3


def since(heading: str) -> str:
    page = (ROOT / "docs" / "results" / "README.md").read_text()
    return page[page.index(f"## SGLang itself on {heading}") :]


def of_two_ranks() -> str:
    return since("two H200s: tensor parallel")


OF_RANKS = [(TWO_RANKS, "two H200s: tensor parallel"), (RANK, "an H200: one rank of four")]


@pytest.mark.parametrize(("folder", "heading"), OF_RANKS)
def test_the_rates_of_ranks_are_those_of_their_levels(folder: Path, heading: str) -> None:
    pair = ""
    for name, *told in rows_of(since(heading), "tok/s, geometric mean of the blocks"):
        variant = re.findall(r"`(\w+)`", name)[0]
        pair = PAIRS.get(variant, pair)
        assert told == [f"{value:,.0f}" for value in levels(pair, variant, folder)], name


@pytest.mark.parametrize(("folder", "heading"), OF_RANKS)
def test_the_changes_of_ranks_are_those_of_their_cells(folder: Path, heading: str) -> None:
    check_changes(since(heading), folder)


def test_one_ranks_share_of_what_attention_for_nothing_would_serve_is_that_of_its_trace_and_cells() -> None:
    served = dict(zip(LEVELS, levels("fast-flashmla", "flashmla", RANK), strict=True))[96]
    trace = json.loads((RANK / "fast-flashmla" / "flashmla-proof.json").read_text())["evidence"]["after_load"]["trace"]
    ceiling = 96 / (96 / served - trace["us_per_step"] / 1e6)
    reached = dict(zip(LEVELS, levels("fast-flashmla", "fast", RANK), strict=True))[96] / ceiling
    told = f"leaves {ceiling:,.0f} tok/s; `fast` serves 17,965, **{reached:.2f} of that ceiling**"
    assert told in since("an H200: one rank of four")


@pytest.mark.parametrize(("folder", "heading"), OF_RANKS)
def test_the_kernel_times_of_ranks_are_those_of_their_traces(folder: Path, heading: str) -> None:
    pair = ""
    for name, attention, beside, working, share, _ in rows_of(since(heading), "us a step"):
        variant = name.strip("`")
        pair = PAIRS.get(variant, pair)
        proof = json.loads((folder / pair / f"{variant}-proof.json").read_text())
        trace = proof["evidence"]["after_load"]["trace"]
        assert attention == f"{sum(launch['us_per_step'] for launch in trace['launches']):,.0f}"
        found = sorted((round(one["us_per_step"]) for one in trace["beside"]), reverse=True)
        assert beside == " + ".join(map(str, found))
        assert (working, share) == (f"{trace['gpu_us_per_step']:,.0f}", f"{100 * trace['share_of_gpu_time']:.1f} %")


def test_what_moving_the_kv_took_is_what_the_report_says() -> None:
    report = (ALONE.with_name("h200_pd") / "fast-pinned-sound" / "report.md").read_text()
    found = rows_of(report, "variant | C | ranks")
    for name, *told in rows_of(of_two_ranks(), "| transfers in the window"):
        mine = [row for row in found if f"`{row[0]}`" in name]
        sent, latency, rate = ([row[at] for row in mine] for at in (3, 5, 6))
        bootstrap, alloc = ([row[at].split(" / ")[part] for row in mine] for at, part in ((7, 0), (8, 1)))
        assert told == [", ".join(sent), mine[0][4], *map(", ".join, (latency, rate, bootstrap, alloc))]


@pytest.mark.parametrize("path", sorted(ALONE.parent.glob("h200_*/*/manifest.json")), ids=lambda p: p.parent.name)
def test_a_committed_campaign_could_go_on_under_its_own_settings(path: Path) -> None:
    recorded = json.loads(path.read_text())["stack"]["settings"]
    settings = json.loads(recorded)
    served = Served(**settings | {"graph_batches": tuple(settings["graph_batches"])})
    assert json.dumps(served.recorded(), sort_keys=True) == recorded
    assert "layers" in replace(served, layers=8).recorded()


def test_limits_tell_the_most_blocks_that_a_pair_has() -> None:
    most = max(len({block for block, *_ in cells(pair.name)}) for pair in ALONE.iterdir() if pair.is_dir())
    words = {2: "two", 3: "three", 4: "four"}
    assert f"{words[most]} blocks of a pair at most" in (ROOT / "docs/limits.md").read_text()


def test_committed_reports_name_the_blocks_that_their_cells_show_as_slow() -> None:
    pairs = [pair for pair in ALONE.iterdir() if pair.is_dir()]
    told = {pair.name: slow_blocks.lines(read_campaign(pair)) for pair in pairs}
    assert [name for name, lines in told.items() if lines] == ["fast-v1-v2-pinned"]
    report = (ALONE / "fast-v1-v2-pinned" / "report.md").read_text()
    assert all(f"- {line}\n" in report for line in told["fast-v1-v2-pinned"])


def test_the_hypothesis_of_fast_tells_its_kernels_least_and_most_share_of_pinneds_time() -> None:
    with (ROOT / "kernels" / "results" / "h200.csv").open(newline="") as file:
        times = {tuple(row.values())[:6]: float(row["median_us"]) for row in csv.DictReader(file)}
    shares = [took / times["pinned", *case] for (provider, *case), took in times.items() if provider == "fast"]
    said = load_variants().get("fast").hypothesis
    assert f"{min(shares):.2f} to {max(shares):.2f} of pinned's time (kernels/results/h200.csv)" in said
