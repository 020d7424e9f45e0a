"""The servers' counters are read, and their cache is flushed with patience."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from loadtest.measure.server import Server, read_metrics, sample_from_json, sample_json

PAGE = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 7.0
sglang:generation_tokens_total{is_streaming="true"} 1000
sglang:generation_tokens_total{is_streaming="false"} 24
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 5e3
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 11
sglang:cached_tokens_total{cache_source="total"} 3
sglang:cached_tokens_total{cache_source="device"} 3
sglang:token_usage 0.25
sglang:unknown_thing 9
other:num_running_reqs 1
smg_http_responses_total{status_code="200",error_code=""} 41
smg_http_responses_total{status_code="503",error_code="server_selection_failed"} 2
smg_http_responses_total{status_code="503",error_code="other"} 1
smg_worker_retries_total{worker_type="decode"} 4
"""


class Handler(http.server.BaseHTTPRequestHandler):
    flush_answers: ClassVar[list[int]] = []
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, PAGE)

    def do_POST(self) -> None:
        self._answer(self.flush_answers.pop(0) if self.flush_answers else 400, b"x")

    def log_message(self, *args: object) -> None:
        """Keeps the test output clean."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        client = Server("decode", f"http://127.0.0.1:{listener.server_port}")
        yield client
        client.close()
        listener.shutdown()


def test_metrics_are_summed_over_labels_and_split_by_mode_and_status() -> None:
    assert read_metrics(PAGE) == {
        "num_running_reqs": 7,
        "generation_tokens_total": 1024,
        "realtime_tokens_total:decode": 5000,
        "realtime_tokens_total:prefill_compute": 11,
        "cached_tokens_total": 3,
        "token_usage": 0.25,
        "smg_http_responses_total:200": 41,
        "smg_http_responses_total:503": 3,
        "smg_worker_retries_total": 4,
    }


def test_of_a_transfers_histograms_sum_and_count_are_kept_over_all_ranks() -> None:
    rank = 'engine_type="prefill",model_name="m",tp_rank="{}"'
    page = "# TYPE sglang:kv_transfer_total_mb histogram\n"
    for tp, megabytes, count in ((0, 1536.5, 3.0), (4, 512.0, 1.0)):
        labels = rank.format(tp)
        page += f'sglang:kv_transfer_total_mb_bucket{{{labels},le="500.0"}} {count}\n'
        page += f"sglang:kv_transfer_total_mb_count{{{labels}}} {count}\n"
        page += f"sglang:kv_transfer_total_mb_sum{{{labels}}} {megabytes}\n"
        page += f"sglang:kv_transfer_total_mb_created{{{labels}}} 1.76e+09\n"
    page += f"sglang:kv_transfer_speed_gb_s_sum{{{rank.format(0)}}} 9.0\n"
    summed = {"kv_transfer_total_mb_sum": 2048.5, "kv_transfer_total_mb_count": 4}
    assert read_metrics(page.encode()) == summed | {"kv_transfer_ranks": 2}


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        (('tp_rank="0",dp_rank="0"', 'tp_rank="0",dp_rank="1"', 'tp_rank="1",dp_rank="1"'), 3),
        (('pp_rank="0",tp_rank="0"', 'pp_rank="1",tp_rank="0"'), 2),
        (('tp_rank="7"',), 1),
        (('model_name="m"',), None),
    ],
)
def test_the_ranks_that_a_transfers_histograms_are_summed_over_are_counted(
    labels: tuple[str, ...], ranks: int | None
) -> None:
    lines = (f"sglang:kv_transfer_{name}_ms_sum{{{each}}} 5.0" for name in ("alloc", "latency") for each in labels)
    page = 'sglang:num_running_reqs{tp_rank="9"} 1.0\n' + "\n".join(lines)
    assert read_metrics(page.encode()).get("kv_transfer_ranks") == ranks


def test_sample_is_read_and_survives_its_json(server: Server) -> None:
    sample = server.sample()
    assert (sample.role, sample.error, sample.values["num_running_reqs"]) == ("decode", "", 7)
    assert sample_from_json(sample_json(sample)) == sample


def test_server_that_is_gone_gives_a_sample_with_its_error() -> None:
    assert "refused" in Server("prefill", "http://127.0.0.1:9").sample().error


def test_flush_is_repeated_while_the_server_is_busy(server: Server) -> None:
    Handler.flush_answers[:] = [400, 400, 200]
    record = server.flush(patience_s=5, sleep=lambda s: None)
    assert (record["status"], record["attempts"]) == (200, 3)


def test_flush_that_never_succeeds_is_recorded_as_such(server: Server) -> None:
    Handler.flush_answers[:] = []
    assert server.flush(patience_s=0, sleep=lambda s: None)["status"] == 400
