from __future__ import annotations

import hashlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.engine.running import (
    ROOT,
    Running,
    engine,
    engine_command,
    events,
    free_ports,
    read_all,
    write_kernel,
)

SHORT = {"prompt": "a b c", "max_tokens": 5, "ignore_eos": True}
LONG = {"prompt": "a b c", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
STREAM = {**SHORT, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kernel(tmp_path_factory.mktemp("kernel") / "kernel.py", (16, 4, 2))


@pytest.fixture(scope="module")
def single(kernel: Path) -> Iterator[Running]:
    options = ["--role", "single", "--kernel-file", str(kernel), "--time-scale", "50", "--noise", "none"]
    options += ["--truth", "memory", "--variant", "pinned", "--enable-cache-report"]
    with engine(*options) as started:
        yield started


def wait_until(condition: Any, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def test_completion_stream_has_a_token_an_event_then_usage_then_the_end(single: Running) -> None:
    *tokens, usage, end = events(single.post("/v1/completions", STREAM)[1])
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None] * 4 + ["length"]
    assert all(t["choices"][0]["text"] for t in tokens)
    assert (usage["choices"], usage["usage"]["completion_tokens"], usage["usage"]["prompt_tokens"]) == ([], 5, 3)
    assert end == "[DONE]"


def test_continuous_usage_counts_every_event(single: Running) -> None:
    asked = {**STREAM, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    shown = events(single.post("/v1/completions", asked)[1])
    assert [e["usage"]["completion_tokens"] for e in shown[:-1]] == [1, 2, 3, 4, 5, 5]


def test_chat_stream_opens_with_the_role_and_closes_with_the_reason(single: Running) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True, "stream": True}
    opening, *tokens, reason, end = events(single.post("/v1/chat/completions", body)[1])
    assert opening["choices"][0]["delta"]["role"] == "assistant"
    assert opening["choices"][0]["delta"]["content"] == ""
    assert (len(tokens), reason["choices"][0]["finish_reason"], end) == (3, "length", "[DONE]")


def test_native_stream_repeats_the_text_so_far(single: Running) -> None:
    body = {"text": "a b", "sampling_params": {"max_new_tokens": 3, "ignore_eos": True}, "stream": True}
    shown = events(single.post("/generate", body)[1])
    assert [e["meta_info"]["completion_tokens"] for e in shown[:-1]] == [1, 2, 3]
    assert shown[1]["text"].startswith(shown[0]["text"])


def test_answer_in_one_piece_equals_the_streamed_text(single: Running) -> None:
    whole = json.loads(single.post("/v1/completions", SHORT)[1])
    streamed = events(single.post("/v1/completions", STREAM)[1])
    assert whole["choices"][0]["text"] == "".join(e["choices"][0]["text"] for e in streamed[:5])
    assert whole["usage"]["total_tokens"] == 8


def test_without_ignore_eos_answers_stop_by_themselves_but_not_before_min_tokens(single: Running) -> None:
    bodies = [{"prompt": f"p{i}", "max_tokens": 300, "min_tokens": 50} for i in range(12)]
    shown = [events(single.post("/v1/completions", {**b, "stream": True})[1]) for b in bodies]
    lengths = [len(s) - 1 for s in shown]
    reasons = {s[-2]["choices"][0]["finish_reason"] for s in shown}
    assert min(lengths) >= 50
    assert reasons == {"length", "stop"}


def test_tokens_leave_at_the_calibrated_pace(single: Running) -> None:
    single.post("/v1/completions", {**STREAM, "max_tokens": 60, "rid": "pace"})
    (record,) = single.get("/truth?rid=pace")["records"]
    gaps = [b - a for a, b in zip(record["planned_ns"][1:], record["planned_ns"][2:], strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(22e6 / 50, rel=1e-3)
    assert (record["outcome"], sum(record["tokens"])) == ("length", 60)


def test_second_prompt_of_the_same_words_is_cached(single: Running) -> None:
    body = {**STREAM, "prompt": " ".join(f"c{i}" for i in range(600))}
    cached = [events(single.post("/v1/completions", body)[1])[-2]["usage"]["prompt_tokens_details"] for _ in range(2)]
    assert cached == [None, {"cached_tokens": 512}]
    assert single.metric("sglang:cache_hit_rate") > 0
    assert single.metric("sglang:cached_tokens_total") >= 512


def test_flush_empties_the_cache_and_is_refused_while_requests_run(single: Running) -> None:
    body = {**STREAM, "prompt": " ".join(f"f{i}" for i in range(600))}
    single.post("/v1/completions", body)
    with single.open(LONG):
        wait_until(lambda: single.metric("sglang:num_running_reqs") == 1)
        status, text = single.post("/flush_cache", b"")
    wait_until(lambda: single.metric("sglang:num_running_reqs") == 0)
    assert (status, "running" in text) == (400, True)
    assert single.post("/flush_cache", b"")[0] == 200
    assert events(single.post("/v1/completions", body)[1])[-2]["usage"]["prompt_tokens_details"] is None


def test_counters_follow_the_tokens(single: Running) -> None:
    before = single.metric("sglang:generation_tokens_total"), single.metric("sglang:realtime_tokens_total", "decode")
    single.post("/v1/completions", SHORT)
    after = single.metric("sglang:generation_tokens_total"), single.metric("sglang:realtime_tokens_total", "decode")
    assert (after[0] - before[0], after[1] - before[1]) == (5, 4)


def test_metrics_name_each_family_once(single: Running) -> None:
    types = [x for x in single.text("/metrics").splitlines() if x.startswith("# TYPE")]
    assert len(types) == len(set(types)) > 20


def test_client_that_leaves_frees_its_memory(single: Running) -> None:
    aborted = single.metric("sglang:num_aborted_requests_total")
    with single.open(LONG) as connection:
        connection.recv(1000)
    wait_until(lambda: single.metric("sglang:num_aborted_requests_total") == aborted + 1)
    assert single.metric("sglang:kv_used_tokens") == 0


def test_abort_ends_a_stream_with_its_reason(single: Running) -> None:
    with single.open({**LONG, "rid": "doomed"}, headers="connection: close\r\n") as connection:
        connection.recv(1000)
        assert single.post("/abort_request", {"rid": "doomed"})[0] == 200
        assert b'"finish_reason":"abort"' in read_all(connection)


def test_requests_on_one_connection_are_answered_in_turn(single: Running) -> None:
    body = b'{"prompt": "x", "max_tokens": 1}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    with single.open(SHORT) as connection:
        connection.sendall(head + body)
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        ({"prompt": ["a", "b"]}, "batches"),
        ({"prompt": "a", "max_tokens": 200_000}, "maximum context length"),
    ],
)
def test_bad_request_is_400_with_the_reason(single: Running, body: Any, message: str) -> None:
    status, text = single.post("/v1/completions", body)
    assert (status, message in text) == (400, True)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /generate HTTP/1.1\r\ncontent-length: 999999999\r\n\r\n", b"413"),
        (b"GET /health HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_request_out_of_bounds_is_refused_and_closed(single: Running, head: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", single.port), timeout=5) as connection:
        connection.sendall(head)
        assert read_all(connection).split(b" ")[1] == status


def test_unknown_path_is_404_and_wrong_method_405(single: Running) -> None:
    assert single.post("/nothing", {})[0] == 404
    with pytest.raises(OSError, match="405"):
        single.text("/generate")


def test_server_info_says_simulated_and_what_runs(single: Running, kernel: Path) -> None:
    info = single.get("/server_info")
    mine = info["decode_ab"]
    assert info["SIMULATED"] is mine["simulated"] is True
    assert (mine["variant"], mine["config"], mine["selector"], mine["time_scale"]) == (
        "pinned",
        "(16,4,2)",
        "triton",
        50,
    )
    assert mine["kernel_sha256"] == hashlib.sha256(kernel.read_bytes()).hexdigest()
    assert mine["pid"] == single.process.pid


@pytest.mark.parametrize("path", ["/get_server_info", "/model_info", "/v1/models", "/v1/loads", "/get_load"])
def test_informative_paths_answer(single: Running, path: str) -> None:
    assert single.get(path)


def test_health_is_503_while_starting(kernel: Path) -> None:
    options = ["--role", "single", "--kernel-file", str(kernel), "--startup-s", "1.5"]
    with engine(*options, ready="/v1/models") as started:
        with pytest.raises(OSError, match="503"):
            started.text("/health")
        wait_until(lambda: started.post("/health", b"")[0] == 200)


def test_first_line_says_simulated_and_sigterm_ends_cleanly(kernel: Path, tmp_path: Path) -> None:
    path = tmp_path / "truth.npz"
    with engine(
        "--role", "single", "--kernel-file", str(kernel), "--truth", str(path), "--time-scale", "50"
    ) as started:
        started.post("/v1/completions", STREAM)
        started.process.send_signal(signal.SIGTERM)
        output = started.process.communicate(timeout=10)[0]
    assert started.process.returncode == 0
    assert output.startswith("SIMULATED single engine")
    with np.load(path) as truth:
        assert (truth["events"].tolist(), truth["tokens"].sum(), truth["outcome"].tolist()) == ([5], 5, ["length"])


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = engine_command("--role", "single", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_taken_port_ends_with_4_and_one_line(kernel: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = ended("--port", str(taken.getsockname()[1]), "--kernel-file", str(kernel))
    assert (result.returncode, result.stderr.count("\n")) == (4, 1)
    assert "choose another --port" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--selector", "flashmla"], 2, "unknown selector"),
        (["--noise", "loud", "--selector", "flashinfer"], 2, "unknown noise profile"),
        (["--script", "/nowhere.yaml"], 2, "cannot be read"),
        (["--kernel", "other"], 3, "other"),
    ],
)
def test_wrong_options_end_with_their_code_and_one_line(
    kernel: Path, arguments: list[str], code: int, message: str
) -> None:
    result = ended("--port", str(free_ports(1)[0]), "--kernel-file", str(kernel), *arguments)
    assert (result.returncode, result.stderr.count("\n")) == (code, 1)
    assert message in result.stderr


def test_engine_dies_with_its_parent(kernel: Path) -> None:
    (port,) = free_ports(1)
    command = engine_command("--role", "single", "--port", str(port), "--kernel-file", str(kernel), "--pdeathsig")
    script = f"import subprocess, time; subprocess.Popen({command!r}); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    wait_until(lambda: answers(port))
    parent.kill()
    parent.wait()
    wait_until(lambda: not answers(port))


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
