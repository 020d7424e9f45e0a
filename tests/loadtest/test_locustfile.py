"""The driver as it is run: a plain headless `locust -f`, with and without an order."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadtest.client.accuracy import accuracy
from loadtest.client.prompts import PromptList
from loadtest.client.rows import Rows, read_load, read_rows
from loadtest.measure.reconcile import overlap, peak
from loadtest.measure.window import measure
from loadtest.order import StartOrder
from loadtest.plan import Lengths, Plan, Start, WindowRules

ROOT = Path(__file__).resolve().parents[2]
RULES = WindowRules(settle_s=0.6, window_s=2.5, fill_timeout_s=20, max_loop_lag_ms=1000)


def locust(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--headless", "--only-summary", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def order_for(url: str, out: Path, output_tokens: int = 40, **changes: Any) -> StartOrder:
    levels, lengths = (3, 6, 2), Lengths(16, output_tokens)
    return StartOrder(
        3, 1, "v1", "pinned", levels, "t/prompts/3", url, out, lengths=lengths, window=RULES, simulated=True, **changes
    )


@pytest.fixture(scope="module")
def run(mock_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One start through Locust: its folder and output."""
    out = tmp_path_factory.mktemp("start")
    order_for(mock_url, out).write(out / "order.json")
    done = locust("--host", mock_url, "--decode-ab-order", str(out / "order.json"))
    assert done.returncode == 0, done.stderr
    return out, done.stdout + done.stderr


@pytest.fixture(scope="module")
def rows(run: tuple[Path, str]) -> Rows:
    return read_rows(run[0])


def test_levels_are_visited_in_order_with_their_marks(run: tuple[Path, str]) -> None:
    load = read_load(run[0])
    assert [level["concurrency"] for level in load["levels"]] == [3, 6, 2]
    for level in load["levels"]:
        steps = [level[n] for n in ("entered_ns", "filled_ns", "window_start_ns", "window_end_ns")]
        assert steps == sorted(steps)
        assert level["window_end_ns"] - level["window_start_ns"] == pytest.approx(2.5e9, rel=0.2)
    assert (load["simulated"], load["block"], load["start"], load["variant"]) == (True, 3, 1, "v1")


def test_in_flight_never_exceeds_the_largest_level_nor_its_own_in_a_window(run: tuple[Path, str], rows: Rows) -> None:
    assert peak(rows.sent_ns, rows.ended_ns) == 6
    for level in read_load(run[0])["levels"]:
        near = (rows.ended_ns > level["window_start_ns"]) & (rows.sent_ns < level["window_end_ns"])
        assert peak(rows.sent_ns[near].clip(level["window_start_ns"]), rows.ended_ns[near]) == level["concurrency"]


def test_users_are_staggered_inside_the_first_request_length(rows: Rows) -> None:
    first = (rows.concurrency == 3) & (rows.sequence == 0)
    assert sorted(rows.requested_tokens[first]) == [13, 27, 40]


def test_every_request_kept_its_promise_and_its_prompt(rows: Rows) -> None:
    assert set(rows.error_kind) == {""}
    prompts = PromptList("t/prompts/3", Lengths(16, 40))
    keys = zip(rows.concurrency.tolist(), rows.user.tolist(), rows.sequence.tolist(), strict=True)
    assert list(rows.prompt_sha256) == [prompts.prompt(*key).sha256 for key in keys]
    assert set(rows.prompt_tokens.tolist()) == {16}


def test_cells_of_the_run_are_those_of_the_mocks_schedule(run: tuple[Path, str], rows: Rows) -> None:
    plan = Plan(1, {"v1": "pinned"}, (2, 3, 6), blocks=4, window=RULES, delta=0.2)
    cells = measure(Start(3, 1, "v1", (3, 6, 2)), rows, read_load(run[0]), plan)
    assert [c.concurrency for c in cells] == [3, 6, 2]
    for cell in cells:
        assert cell.reasons == ()
        assert cell.tokens_per_s == pytest.approx(cell.concurrency * 40 / 0.44, rel=0.1)


def test_stamps_agree_with_the_mocks_own_record(run: tuple[Path, str], rows: Rows, mock_url: str) -> None:
    import urllib.request

    with urllib.request.urlopen(f"{mock_url}/truth") as answer:
        truth = json.load(answer)["records"]
    found = accuracy(rows, truth, 0, 2**62)
    assert found.requests > 30
    assert abs(found.mean_itl) < 0.02
    assert abs(found.output_rate) < 0.05


def test_locusts_table_is_fed_in_milliseconds_and_counts_requests_once(run: tuple[Path, str], rows: Rows) -> None:
    (total,) = [line for line in run[1].splitlines() if "Aggregated" in line and "%" in line][:1]
    assert int(total.split()[1]) == len(rows)
    (ttft,) = [line for line in run[1].splitlines() if "TTFT C=6" in line and "%" in line][:1]
    assert 45 <= float(ttft.split("|")[1].split()[0]) <= 150


def test_levels_that_rise_after_a_fall_stay_full_where_requests_outlast_a_level(mock_url: str, tmp_path: Path) -> None:
    order = order_for(mock_url, tmp_path, output_tokens=200)
    rules = WindowRules(settle_s=0.2, window_s=1.5, fill_timeout_s=20, max_loop_lag_ms=1000)
    order = replace(order, concurrencies=(6, 1, 3, 5), window=rules)
    order.write(tmp_path / "order.json")
    assert locust("--host", mock_url, "--decode-ab-order", str(tmp_path / "order.json")).returncode == 0
    rows = read_rows(tmp_path)
    for level in read_load(tmp_path)["levels"]:
        begin, end = level["window_start_ns"], level["window_end_ns"]
        assert overlap(rows.sent_ns, rows.ended_ns, begin, end) == pytest.approx(level["concurrency"], rel=0.05)


def test_decode_alone_begins_each_level_with_fresh_whole_requests_and_ends_none_in_a_window(
    mock_url: str, tmp_path: Path
) -> None:
    rules = WindowRules(settle_s=0.2, window_s=1.5, fill_timeout_s=20, max_loop_lag_ms=1000, decode_only=True)
    order = replace(order_for(mock_url, tmp_path, output_tokens=2000), concurrencies=(6, 1, 3), window=rules)
    order.write(tmp_path / "order.json")
    assert locust("--host", mock_url, "--decode-ab-order", str(tmp_path / "order.json")).returncode == 0
    rows, load = read_rows(tmp_path), read_load(tmp_path)
    assert set(rows.error_kind) == {"cut"}
    assert set(rows.requested_tokens.tolist()) == {2000}
    assert sorted(rows.concurrency.tolist()) == [1] * 1 + [3] * 3 + [6] * 6
    plan = Plan(1, {"v1": "pinned"}, (1, 3, 6), blocks=4, window=rules, delta=0.2)
    for cell in measure(Start(3, 1, "v1", (6, 1, 3)), rows, load, plan):
        assert (cell.reasons, cell.requests) == ((), 0)
        assert cell.tokens_per_s * cell.tpot_p50_ms / 1000 == pytest.approx(cell.concurrency, rel=0.05)


def test_a_run_whose_answers_end_inside_windows_of_decode_alone_says_that_it_is_void(
    mock_url: str, tmp_path: Path
) -> None:
    options = ["--decode-ab-concurrencies", "2", "--decode-ab-lengths", "8,10", "--decode-ab-window", "0.2,1"]
    done = locust("--host", mock_url, *options, "--decode-ab-decode-only", "yes", "--decode-ab-out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "C=2 is void: " in done.stderr
    (folder,) = tmp_path.iterdir()
    assert read_load(folder)["window"]["decode_only"] is True


def test_plain_locust_without_an_order_leaves_a_record(mock_url: str, tmp_path: Path) -> None:
    options = ["--decode-ab-concurrencies", "2", "--decode-ab-lengths", "8,10", "--decode-ab-window", "0.2,1"]
    done = locust("--host", mock_url, *options, "--decode-ab-out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    assert len(read_rows(folder)) > 5
    # No order says so; the mock itself does.
    assert read_load(folder)["simulated"] is True


def test_server_that_refuses_everything_ends_in_a_void_level_not_in_a_crash(tmp_path: Path) -> None:
    rules = WindowRules(settle_s=0.1, window_s=0.5, fill_timeout_s=1.5)
    order = StartOrder(0, 0, "v", "", (2,), "s", "http://127.0.0.1:9", tmp_path, window=rules)
    order.write(tmp_path / "order.json")
    done = locust("--host", "http://127.0.0.1:9", "--decode-ab-order", str(tmp_path / "order.json"))
    assert done.returncode == 0, done.stderr
    assert set(read_rows(tmp_path).error_kind) == {"connect"}
    assert "not filled" in read_load(tmp_path)["levels"][0]["reasons"][0]
    # A control has no control of its own, and still the campaign alone measures its cells.
    assert not (tmp_path / "cells.csv").exists()


def test_a_run_by_hand_against_nothing_says_so_at_once_and_what_it_waits_for(tmp_path: Path) -> None:
    done = locust("--host", "http://127.0.0.1:9", "--decode-ab-wait", "0.5", "--decode-ab-out", str(tmp_path))
    assert done.returncode == 6
    assert "http://127.0.0.1:9 does not answer yet" in done.stderr
    assert "Connection refused); waiting for it for up to 0.5 s" in done.stderr
    assert "start the server or correct --host; one that is still starting is waited for with --dec" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_run_by_hand_whose_server_answers_with_faults_alone_ends_with_the_last_of_them(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = locust("--host", url, "--decode-ab-wait", "0.5", "--decode-ab-out", str(tmp_path))
        server.shutdown()
    assert done.returncode == 6
    assert f"{url} answered" in done.stderr
    assert "none with text, at last http_status: HTTP 501" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decode-ab-order", "/nowhere.json"], "no order"),
        (["--decode-ab-concurrencies", "a"], "numbers separated by commas"),
        (["--decode-ab-lengths", "0,1"], "lengths must be"),
        (["--host", "https://x"], "http://host:port"),
    ],
)
def test_bad_input_ends_with_one_line(arguments: list[str], message: str) -> None:
    host = [] if "--host" in arguments else ["--host", "http://127.0.0.1:9"]
    done = locust(*host, *arguments)
    assert done.returncode == 6
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_open_loop_keeps_its_schedule_and_counts_from_it(mock_url: str, tmp_path: Path) -> None:
    options = ["--decode-ab-concurrencies", "20", "--decode-ab-lengths", "8,10", "--decode-ab-window", "0.2,4"]
    done = locust("--host", mock_url, *options, "--decode-ab-rate", "20", "--decode-ab-out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    rows = read_rows(folder)
    assert len(rows) == pytest.approx(20 * 4.5, rel=0.4)
    assert (rows.sent_ns >= rows.scheduled_ns).all()
    assert peak(rows.sent_ns, rows.ended_ns) < 20


def test_two_workers_share_the_slots_of_one_start(mock_url: str, tmp_path: Path) -> None:
    # Long requests: two processes beside a busy machine take their time between one request and the next.
    order_for(mock_url, tmp_path, output_tokens=120).write(tmp_path / "order.json")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    worker = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--worker", "--master-port", port]
    workers = [subprocess.Popen(worker, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        master = ["--master", "--master-bind-port", port, "--expect-workers", "2", "--host", mock_url]
        done = locust(*master, "--decode-ab-order", str(tmp_path / "order.json"))
        assert done.returncode == 0, done.stderr
    finally:
        for one in workers:
            one.terminate()
            one.wait()
    rows = read_rows(tmp_path)
    assert set(rows.error_kind) == {""}
    assert set(rows.worker.tolist()) == {0, 1}
    assert peak(rows.sent_ns, rows.ended_ns) == 6
    assert len(set(rows.prompt_sha256)) == len(rows)
    plan = Plan(1, {"v1": "pinned"}, (2, 3, 6), blocks=4, window=RULES, delta=0.2)
    cells = measure(Start(3, 1, "v1", (3, 6, 2)), rows, read_load(tmp_path), plan)
    assert [(c.concurrency, c.reasons) for c in cells] == [(3, ()), (6, ()), (2, ())]
