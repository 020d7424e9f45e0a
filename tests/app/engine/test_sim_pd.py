"""Prefill and decode behind the real router, with its own arguments."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.engine.sim.options import CALIBRATION
from loadtest.measure.server import read_metrics
from tests.app.engine.pd import Stack, role_command, stack
from tests.app.engine.running import Running, events, free_ports, running, write_kernel

SCALE = 20
OPTIONS = ["--time-scale", str(SCALE), "--noise", "none", "--truth", "memory"]
STREAM = {"model": "m", "max_tokens": 8, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel file, beside a calibration under which the roles wait for each other no longer than 20 s."""
    folder = tmp_path_factory.mktemp("kernel")
    text = CALIBRATION.read_text()
    assert text.count("timeout_s: {value: 300.0") == 2
    (folder / "calibration.yaml").write_text(text.replace("timeout_s: {value: 300.0", "timeout_s: {value: 20.0"))
    return write_kernel(folder / "kernel.py", (16, 4, 2))


@pytest.fixture(scope="module")
def pd(kernel: Path) -> Iterator[Stack]:
    with stack(kernel, OPTIONS, OPTIONS) as started:
        yield started


def prompt(name: str, words: int = 40) -> str:
    return " ".join(f"{name}{i}" for i in range(words))


def test_stream_comes_from_decode_after_prefill_did_its_part(pd: Stack) -> None:
    computed = pd.prefill.metric("sglang:realtime_tokens_total", "prefill_compute")
    decoded = pd.decode.metric("sglang:realtime_tokens_total", "decode")
    *tokens, usage, end = events(pd.router.post("/v1/completions", {**STREAM, "prompt": prompt("s")})[1])
    assert ([bool(t["choices"][0]["text"]) for t in tokens], end) == ([True] * 8, "[DONE]")
    assert usage["usage"]["completion_tokens"] == 8
    assert pd.prefill.metric("sglang:realtime_tokens_total", "prefill_compute") - computed == 40
    # The first token comes with the KV.
    assert pd.decode.metric("sglang:realtime_tokens_total", "decode") - decoded == 7


def test_first_token_waits_for_prefill_and_transfer(pd: Stack) -> None:
    pd.router.post("/v1/completions", {**STREAM, "prompt": prompt("w", 4000), "rid": "wait"})
    (record,) = pd.decode.get("/truth?rid=wait")["records"]
    waited_s = (record["planned_ns"][0] - record["received_ns"]) / 1e9 * SCALE
    assert waited_s >= 0.015 + 4000 / 20000 + 0.005 + 4000 * 40e3 / 10e9


def test_a_transfer_is_observed_by_both_roles_as_the_calibration_has_it(pd: Stack) -> None:
    def told(role: Running) -> dict[str, float]:
        return {name: value for name, value in read_metrics(role.text("/metrics").encode()).items() if "_trans" in name}

    before = told(pd.prefill), told(pd.decode)
    body = {**STREAM, "prompt": prompt("t", 4000), **room(pd.ports, 950)}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pd.prefill.post, "/v1/completions", body)
        while not pd.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs"):
            time.sleep(0.01)
        time.sleep(0.1)
        pd.decode.post("/v1/completions", body)
    moved, waited = (
        {name: value - was[name] for name, value in told(role).items()}
        for role, was in zip((pd.prefill, pd.decode), before, strict=True)
    )
    assert moved["kv_transfer_latency_ms_sum"] == pytest.approx(5 + 4000 * 40e3 / 10e9 * 1e3)
    assert moved["kv_transfer_total_mb_sum"] == pytest.approx(4000 * 40e3 / 2**20)
    assert moved["kv_transfer_bootstrap_ms_sum"] >= 100 * SCALE
    assert moved["kv_transfer_latency_ms_count"] == moved["kv_transfer_bootstrap_ms_count"] == 1
    assert (waited["kv_transfer_bootstrap_ms_sum"], waited["kv_transfer_alloc_ms_count"]) == (0, 1)


def test_cached_tokens_travel_from_prefill_to_decode(pd: Stack) -> None:
    body = {"text": prompt("c", 600), "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}}
    answers = [json.loads(pd.router.post("/generate", body)[1]) for _ in range(2)]
    assert [a["meta_info"]["cached_tokens"] for a in answers] == [0, 512]


def test_chat_and_whole_answers_pass_the_router(pd: Stack) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    answer = json.loads(pd.router.post("/v1/chat/completions", body)[1])
    assert answer["usage"]["completion_tokens"] == 5


def test_many_streams_at_once_share_the_batch(pd: Stack) -> None:
    bodies = [{**STREAM, "max_tokens": 40, "prompt": prompt(f"m{i}-")} for i in range(32)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda b: pd.router.post("/v1/completions", b)[1], bodies))
    assert {events(a)[-2]["usage"]["completion_tokens"] for a in answers} == {40}
    assert pd.decode.metric("sglang:kv_used_tokens") == 0


def test_kv_that_runs_out_puts_requests_out_and_still_gives_every_token(kernel: Path) -> None:
    with stack(kernel, OPTIONS, [*OPTIONS, "--max-total-tokens", "2048", "--page-size", "16"]) as small:
        bodies = [{**STREAM, "max_tokens": 600, "prompt": prompt(f"k{i}-", 200)} for i in range(5)]
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda b: small.router.post("/v1/completions", b)[1], bodies))
        assert {events(a)[-2]["usage"]["completion_tokens"] for a in answers} == {600}
        assert small.decode.metric("sglang:num_retracted_requests_total") > 0
        assert small.decode.metric("sglang:kv_used_tokens") == 0


def test_flush_through_the_router_reaches_both_roles(pd: Stack) -> None:
    assert json.loads(pd.router.post("/flush_cache", b"")[1])["workers_flushed"] == 2


def test_request_without_a_room_is_refused(pd: Stack) -> None:
    for role in (pd.prefill, pd.decode):
        status, text = role.post("/v1/completions", {"prompt": "a"})
        assert (status, "bootstrap room" in text) == (400, True)


def test_client_that_leaves_frees_decode_behind_the_router(pd: Stack) -> None:
    aborted = pd.decode.metric("sglang:num_aborted_requests_total")
    with pd.router.open({**STREAM, "prompt": "x", "max_tokens": 100_000}) as connection:
        connection.recv(100)
    deadline = time.monotonic() + 10
    while pd.decode.metric("sglang:num_aborted_requests_total") == aborted:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert pd.decode.metric("sglang:num_running_reqs") == 0


def room(ports: dict[str, int], number: int) -> dict[str, Any]:
    return {"bootstrap_host": "127.0.0.1", "bootstrap_port": ports["bootstrap"], "bootstrap_room": number}


def test_decode_alone_gives_up_after_the_waiting_timeout(pd: Stack) -> None:
    began = time.monotonic()
    status, text = pd.decode.post("/v1/completions", {"prompt": "a", **room(pd.ports, 77)})
    assert (status, "did not arrive in time" in text) == (500, True)
    assert (time.monotonic() - began) * SCALE >= 20


def test_prefill_alone_gives_up_after_the_bootstrap_timeout(pd: Stack) -> None:
    status, text = pd.prefill.post("/v1/completions", {"prompt": "a", **room(pd.ports, 78)})
    assert (status, "did not ask for the KV in time" in text) == (500, True)
    assert pd.prefill.metric("sglang:num_bootstrap_failed_reqs_total") == 1


def test_bootstrap_port_answers_health_and_drops_nonsense(pd: Stack) -> None:
    bootstrap = Running(pd.prefill.process, pd.ports["bootstrap"])
    assert bootstrap.text("/health") == "OK"
    with socket.create_connection(("127.0.0.1", pd.ports["bootstrap"]), timeout=5) as connection:
        connection.sendall(b"[1]\n")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(10) == b""


def test_prefill_that_dies_fails_waiting_decodes_at_once_and_may_come_back(kernel: Path) -> None:
    with stack(kernel, OPTIONS, OPTIONS) as mine, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.decode.post, "/v1/completions", {**STREAM, "prompt": "a", **room(mine.ports, 5)})
        while mine.decode.metric("sglang:num_decode_transfer_queue_reqs") != 1:
            time.sleep(0.01)
        mine.prefill.process.kill()
        mine.prefill.process.wait()
        status, text = waiting.result(timeout=5)
        assert (status, events(text)[0]["error"]["code"]) == (200, 500)
        assert "Lost connection with prefill" in text
        assert (
            "Could not fetch prefill" in mine.decode.post("/v1/completions", {"prompt": "a", **room(mine.ports, 6)})[1]
        )
        with running(role_command("prefill", mine.ports, kernel, OPTIONS), mine.ports["prefill"]):
            assert mine.router.post("/v1/completions", {**STREAM, "prompt": "b"})[1].endswith("data: [DONE]\n\n")


def test_decode_restarted_under_another_kernel_runs_at_its_speed(pd: Stack, kernel: Path) -> None:
    ports = {**pd.ports, "decode": free_ports(1)[0]}
    slower = write_kernel(kernel.with_name("slower.py"), (16, 8, 2))
    with running(role_command("decode", ports, slower, [*OPTIONS, "--variant", "pinned"]), ports["decode"]) as decode:
        assert step_s(pd, decode, 900) / step_s(pd, pd.decode, 901) == pytest.approx(1 / 0.84, rel=1e-3)


def step_s(pd: Stack, decode: Running, number: int) -> float:
    body = {**STREAM, "max_tokens": 30, "prompt": f"n{number}", "rid": f"n{number}", **room(pd.ports, number)}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pd.prefill.post, "/v1/completions", body)
        decode.post("/v1/completions", body)
    (record,) = decode.get(f"/truth?rid=n{number}")["records"]
    return float(record["planned_ns"][-1] - record["planned_ns"][0])
