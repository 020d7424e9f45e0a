from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.errors import InvalidCampaignError, RecordsError, UsageError
from loadtest.importing.foreign import ForeignRequest, ForeignRun, read_runs, usual_in_flight
from loadtest.importing.runs import foreign_cell, import_campaign
from loadtest.judge.verdict import judge

TOKENS = 64
Write = Callable[[Path, Sequence[ForeignRequest], int], None]


def closed_loop(concurrency: int, itl_s: float, lengths: int = 12, ttft_s: float = 0.05) -> list[ForeignRequest]:
    """Requests of a closed loop whose slots start staggered; every stream emits a token each itl_s."""
    e2e = ttft_s + (TOKENS - 1) * itl_s
    starts = sorted(n * e2e + slot * e2e / concurrency for slot in range(concurrency) for n in range(lengths))
    gaps = (itl_s,) * (TOKENS - 1)
    return [ForeignRequest(s, s + ttft_s, s + e2e, s + e2e, TOKENS, 128, gaps) for s in starts]


def write_aiperf(path: Path, requests: Sequence[ForeignRequest], concurrency: int) -> None:
    lines = [json.dumps(_aiperf_record(r)) for r in requests]
    path.write_text("\n".join(lines))


def _aiperf_record(r: ForeignRequest, **metadata: Any) -> dict[str, Any]:
    times = {"request_start_ns": round(1e9 * r.start_s), "request_end_ns": round(1e9 * r.end_s)}
    metrics = {
        "time_to_first_token": {"value": 1000 * (r.first_s - r.start_s), "unit": "ms"},
        "output_sequence_length": {"value": r.tokens, "unit": "tokens"},
        "input_sequence_length": {"value": r.prompt_tokens, "unit": "tokens"},
        "inter_chunk_latency": {"value": [1000 * g for g in r.gaps_s], "unit": "ms"},
    }
    return {"metadata": {**times, "benchmark_phase": "profiling", **metadata}, "metrics": metrics, "error": None}


def write_guidellm(path: Path, requests: Sequence[ForeignRequest], concurrency: int) -> None:
    path.write_text(json.dumps({"metadata": {"version": 2}, "benchmarks": [_guidellm_benchmark(requests)]}))


def _guidellm_benchmark(requests: Sequence[ForeignRequest]) -> dict[str, Any]:
    whole = [
        {
            "request_start_time": r.start_s,
            "request_end_time": r.end_s,
            "time_to_first_token_ms": 1000 * (r.first_s - r.start_s),
            "output_tokens": r.tokens,
            "prompt_tokens": r.prompt_tokens,
            "info": {"timings": {"last_token_iteration": r.last_s}},
        }
        for r in requests
    ]
    return {"requests": {"successful": whole, "incomplete": [], "errored": []}}


def sglang_record(requests: Sequence[ForeignRequest], concurrency: int, **more: Any) -> dict[str, Any]:
    return {
        "request_rate": math.inf,
        "max_concurrency": concurrency,
        "duration": sum(r.end_s - r.start_s for r in requests) / concurrency,
        "completed": len(requests),
        "total_output_tokens": sum(r.tokens for r in requests),
        "input_lens": [r.prompt_tokens for r in requests],
        "output_lens": [r.tokens for r in requests],
        "ttfts": [r.first_s - r.start_s for r in requests],
        "itls": [list(r.gaps_s) for r in requests],
        "errors": ["" for _ in requests],
        "server_info": {"internal_states": [{}]},
    } | more


def write_sglang(path: Path, requests: Sequence[ForeignRequest], concurrency: int) -> None:
    path.write_text(json.dumps(sglang_record(requests, concurrency)) + "\n")


FORMATS: list[tuple[str, Write]] = [
    ("profile_export.jsonl", write_aiperf),
    ("benchmarks.json", write_guidellm),
    ("sglang.jsonl", write_sglang),
]
BY_NAME = pytest.mark.parametrize(("name", "write"), FORMATS, ids=["aiperf", "guidellm", "sglang"])


@BY_NAME
def test_steady_throughput_is_streams_over_their_token_time(tmp_path: Path, name: str, write: Write) -> None:
    requests = closed_loop(8, 0.01)
    write(tmp_path / name, requests, 8)
    (run,) = read_runs(tmp_path / name)
    cell = foreign_cell(run, 0, 0, "v1")
    assert cell.reasons == ()
    assert cell.concurrency == 8
    assert cell.tokens_per_s == pytest.approx(8 * TOKENS / (0.05 + 63 * 0.01), rel=0.01)
    assert cell.tpot_p50_ms == pytest.approx(10, rel=1e-6)
    assert cell.ttft_p50_ms == pytest.approx(50, rel=1e-6)


@BY_NAME
def test_a_known_loss_is_found_in_imported_results(tmp_path: Path, name: str, write: Write) -> None:
    found = import_campaign(campaign(tmp_path, name, write, loss=0.07), {"v1": "pinned"})
    variant = judge(found.plan, found.cells, found.facts).variants[0]
    assert (variant.decision, variant.stamps) == ("reject", ("imported", "not proven"))
    assert [x.effect_pct for x in variant.levels] == [pytest.approx(-6.5, abs=0.3)] * 2


@pytest.mark.parametrize("name", ["aiperf-0.13.0.jsonl", "guidellm-0.8.1.json"])
def test_files_written_by_the_tools_themselves_are_read(name: str) -> None:
    """Against a server that sends 64 tokens 10 ms apart after 50 ms; the first three requests of each file."""
    (run,) = read_runs(Path(__file__).parent / "foreign" / name)
    assert [(r.tokens, r.prompt_tokens) for r in run.requests] == [(64, 100)] * 3
    for r in run.requests:
        assert 0.05 < r.first_s - r.start_s < 0.08
        assert 0.63 < r.last_s - r.first_s < 0.75
        assert r.last_s <= r.end_s


def test_an_imported_verdict_says_what_is_not_known(tmp_path: Path) -> None:
    found = import_campaign(campaign(tmp_path, "sglang.jsonl", write_sglang, order="AB"), {"v1": "pinned"})
    assert found.plan.design == "single"
    assert "nothing proves which kernel ran" in found.facts.notes[0]


def test_a_file_that_was_appended_to_is_refused_by_line_and_level(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "sglang.jsonl", write_sglang)
    table = list(csv.DictReader((folder / "import.csv").read_text().splitlines()))
    path = folder / table[2]["file"]
    path.write_text(path.read_text() + json.dumps(sglang_record(closed_loop(2, 0.02), 2)) + "\n")
    named = rf"block {table[2]['block']} has C=2 twice, by line \d+ .* and line \d+ .*leave one of the two"
    with pytest.raises(RecordsError, match=named):
        import_campaign(folder, {"v1": "pinned"})


def test_a_simulated_server_is_noticed_in_sglang_results(tmp_path: Path) -> None:
    info = {"decode": [{"decode_ab": {"simulated": True}}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(sglang_record(closed_loop(2, 0.01), 2, server_info=info)))
    assert read_runs(tmp_path / "x.jsonl")[0].simulated


@pytest.mark.parametrize(
    ("name", "content", "lacking"),
    [
        ("a.jsonl", {"max_concurrency": 8, "total_output_tokens": 9, "request_rate": math.inf}, "--output-details"),
        ("a.jsonl", sglang_record(closed_loop(2, 0.01), 2, max_concurrency=None), "--max-concurrency"),
        ("a.jsonl", sglang_record(closed_loop(2, 0.01), 2, request_rate=4.0), "a closed loop"),
        ("a.jsonl", sglang_record(closed_loop(1, 0.01, 1), 1, errors=["refused"]), "completed requests"),
        ("a.json", {"aggregated_metrics": {}, "individual_request_metrics": []}, "time each request was sent"),
        ("a.json", {"input_config": {}, "request_throughput": {}}, r"give profile_export\.jsonl"),
        ("a.json", {"benchmarks": [{"requests": {"successful": []}}]}, "completed requests"),
        ("a.json", {"benchmarks": [{"requests": {"successful": [{"output_tokens": 3}]}}]}, "request_start_time"),
        ("a.jsonl", {"metadata": {}, "metrics": {}}, "time_to_first_token.*--streaming"),
        ("a.json", {"surprise": 1}, "not a result of"),
        ("a.json", [], "holds no result"),
    ],
)
def test_what_a_file_lacks_is_said(tmp_path: Path, name: str, content: object, lacking: str) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(RecordsError, match=lacking):
        read_runs(tmp_path / name)


def test_a_broken_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RecordsError, match="not JSON"):
        read_runs(tmp_path / "a.json")
    with pytest.raises(RecordsError, match="does not exist"):
        read_runs(tmp_path / "b.json")


def test_failed_requests_void_a_run_whose_times_are_rebuilt(tmp_path: Path) -> None:
    requests = closed_loop(4, 0.01)
    errors = ["timeout"] + [""] * (len(requests) - 1)
    (tmp_path / "a.jsonl").write_text(json.dumps(sglang_record(requests, 4, errors=errors)))
    cell = foreign_cell(read_runs(tmp_path / "a.jsonl")[0], 0, 0, "v1")
    assert "1 requests failed at unknown times" in cell.reasons[0]


def test_pauses_hidden_by_a_file_without_send_times_void_the_cell(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(sglang_record(closed_loop(4, 0.01), 4, duration=60.0)))
    cell = foreign_cell(read_runs(tmp_path / "a.jsonl")[0], 0, 0, "v1")
    assert "pauses that the file hides" in cell.reasons[0]


def test_warm_up_cancelled_and_failed_records_do_not_count_as_requests(tmp_path: Path) -> None:
    requests = closed_loop(4, 0.01)
    records = [_aiperf_record(r) for r in requests]
    records[0]["metadata"]["benchmark_phase"] = "warmup"
    records[-1]["metadata"]["was_cancelled"] = True
    records[-2]["error"] = {"code": 500}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    (run,) = read_runs(tmp_path / "a.jsonl")
    assert (len(run.requests), run.failures, len(run.unfinished_s)) == (len(requests) - 3, 1, 1)


def test_a_window_ends_before_requests_that_were_cut_off() -> None:
    requests = closed_loop(4, 0.01)
    whole = foreign_cell(ForeignRun("x", "x", 4, tuple(requests)), 0, 0, "v1")
    cut = foreign_cell(ForeignRun("x", "x", 4, tuple(requests), unfinished_s=(6.0,)), 0, 0, "v1")
    assert cut.window_s < whole.window_s
    assert cut.tokens_per_s == pytest.approx(whole.tokens_per_s, rel=0.01)


def test_a_run_too_short_for_a_steady_window_is_void() -> None:
    cell = foreign_cell(ForeignRun("x", "x", 4, tuple(closed_loop(4, 0.01, lengths=3))), 0, 0, "v1")
    assert "needs 5 (send more requests)" in cell.reasons[0]


def test_an_open_loop_is_void() -> None:
    requests = [r for i, r in enumerate(closed_loop(8, 0.01)) if i % 3]
    cell = foreign_cell(ForeignRun("x", "x", 8, tuple(requests)), 0, 0, "v1")
    assert "no closed loop" in cell.reasons[0]


def test_requests_that_hand_over_a_slot_are_not_counted_twice() -> None:
    assert usual_in_flight(closed_loop(5, 0.01)) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:12], "a verdict needs 4 or more"),
        (lambda rows: [r for r in rows if r["variant"] == "v1"], "has no rows of pinned, the control of v1"),
        (lambda rows: rows[2:], "starts per block and variant"),
        (
            lambda rows: [r for r in rows if (r["block"], r["variant"]) != ("2", "pinned")],
            "block 2 has no start of pinned; an arm counts only beside",
        ),
        (lambda rows: [{**r, "start": "0"} for r in rows], "to two variants"),
        (lambda rows: [{**r, "block": "one"} for r in rows], "numbers from 0"),
        (lambda rows: [{"file": r["file"]} for r in rows], "needs the columns"),
        (lambda rows: [], "a row a file"),
    ],
)
def test_a_table_that_does_not_make_blocks_is_refused(
    tmp_path: Path, change: Callable[[list[dict[str, str]]], list[dict[str, str]]], message: str
) -> None:
    folder = campaign(tmp_path, "sglang.jsonl", write_sglang)
    with (folder / "import.csv").open() as source:
        rows = change(list(csv.DictReader(source)))
    write_table(folder, rows)
    with pytest.raises((RecordsError, InvalidCampaignError, UsageError), match=message):
        import_campaign(folder, {"v1": "pinned"})


@pytest.mark.parametrize("rate", ["inf", "Infinity"])
def test_a_rate_without_limit_may_stand_there_as_a_text(tmp_path: Path, rate: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(sglang_record(closed_loop(2, 0.01), 2, request_rate=rate)))
    assert read_runs(tmp_path / "a.json")[0].concurrency == 2


def test_arms_that_did_different_work_are_refused(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "sglang.jsonl", write_sglang)
    record = sglang_record(closed_loop(4, 0.01), 4)
    record["input_lens"] = [256] * len(record["input_lens"])
    (folder / "0-0-4-sglang.jsonl").write_text(json.dumps(record))
    with pytest.raises(InvalidCampaignError, match="not the same work"):
        import_campaign(folder, {"v1": "pinned"})


def campaign(folder: Path, name: str, write: Write, loss: float = 0.0, order: str = "ABBA") -> Path:
    """Five blocks at two concurrencies; the variant's tokens take 1/(1-loss) as long, each start a little off."""
    rows = []
    for block in range(5):
        arms = order if block % 2 else order[::-1] if len(order) == 2 else "BAAB"
        for start, arm in enumerate(arms):
            for concurrency in (2, 4):
                # The last term alone keeps any two files from being the same bytes.
                off = 0.001 * ((7 * block + 3 * start + concurrency) % 5) + 1e-7 * (4 * block + start)
                itl = 0.01 * (1 + off) / (1 - loss * (arm == "B"))
                file = f"{block}-{start}-{concurrency}-{name}"
                write(folder / file, closed_loop(concurrency, itl), concurrency)
                variant = "v1" if arm == "B" else "pinned"
                rows.append({"block": str(block), "start": str(start), "variant": variant, "file": file})
    write_table(folder, rows)
    return folder


def write_table(folder: Path, rows: list[dict[str, str]]) -> None:
    with (folder / "import.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0] if rows else ["block", "start", "variant", "file"])
        writer.writeheader()
        writer.writerows(rows)
