"""The local stack for real: prefill and decode of the simulated engine behind the real router."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.engine.probe import answers, send_canary, server_info
from app.engine.proof import check_proof, read_proof
from app.engine.sglang.served import BALANCERS as SETTINGS
from app.engine.sim.engine import SimEngine
from app.errors import NotReadyError
from app.kernel.placed import PlacedKernel
from app.stack.local import LocalStack, check_port_free, free_port
from app.stack.router import BALANCERS
from app.stack.watch import Watch

LIST = """import triton
@triton.autotune(configs=[triton.Config({{"BLOCK_T": 16}}, num_warps={warps}, num_stages=2)], key=["n"])
@triton.jit
def _kernel(n, BLOCK_T: triton.language.constexpr):
    pass
"""


def kernel(folder: Path, variant: str, warps: int) -> PlacedKernel:
    path = folder / f"{variant}.py"
    path.write_text(LIST.format(warps=warps))
    return PlacedKernel(variant, "triton", path, hashlib.sha256(path.read_bytes()).hexdigest(), "base", "_kernel")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    with LocalStack(SimEngine(seed=1, time_scale=20), tmp_path / "logs") as made:
        yield made


def pids() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def test_a_stack_serves_what_it_was_brought_up_on_and_leaves_nothing_behind(tmp_path: Path, stack: LocalStack) -> None:
    before, placed = pids(), kernel(tmp_path, "pinned", 4)
    endpoints = stack.up(placed, "block-000/start-00")
    assert send_canary(endpoints).completion_tokens == 4
    assert check_proof(read_proof(endpoints), placed).config == "(16,4,2)"
    assert len(pids() - before) >= 3
    stack.down()
    assert pids() == before


def test_switching_replaces_decode_alone(tmp_path: Path, stack: LocalStack) -> None:
    first = stack.up(kernel(tmp_path, "pinned", 4), "a")
    prefill, decode = server_info(first.prefill_url), server_info(first.decode_url)
    second = stack.switch(kernel(tmp_path, "v1", 8), "b")
    send_canary(second)
    assert server_info(second.prefill_url)["decode_ab"]["pid"] == prefill["decode_ab"]["pid"]
    assert server_info(second.decode_url)["decode_ab"]["pid"] != decode["decode_ab"]["pid"]
    assert read_proof(second).config == "(16,8,2)"


def test_a_killed_decode_is_named_by_the_stack(tmp_path: Path, stack: LocalStack) -> None:
    endpoints = stack.up(kernel(tmp_path, "pinned", 4), "a")
    os.kill(server_info(endpoints.decode_url)["decode_ab"]["pid"], signal.SIGKILL)
    # A process closes its sockets before its end can be seen.
    while not (ended := stack.alive()):
        time.sleep(0.01)
    assert ended == ["decode"]
    assert not answers(f"{endpoints.decode_url}/health")


def test_a_decode_that_cannot_start_ends_the_whole_stack_and_says_why(tmp_path: Path, stack: LocalStack) -> None:
    before, broken = pids(), kernel(tmp_path, "broken", 4)
    broken.path.write_text("no kernel here\n")
    with pytest.raises(NotReadyError, match="decode ended with exit code"):
        stack.up(broken, "a")
    assert pids() == before


def test_a_router_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    before = pids()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with (
            LocalStack(SimEngine(1, 20), tmp_path / "logs", router_port=port) as stack,
            pytest.raises(NotReadyError, match=f"port {port} for the router is in use"),
        ):
            stack.up(kernel(tmp_path, "pinned", 4), "a")
    assert pids() == before


def test_the_mini_load_balancer_serves_in_place_of_the_router_and_says_what_it_lacks(tmp_path: Path) -> None:
    stack = LocalStack(SimEngine(seed=1, time_scale=20), tmp_path / "logs", balancer="mini")
    assert stack.manifest()["router"] == "sglang-router 0.3.2, its mini load balancer"
    with stack:
        endpoints = stack.up(kernel(tmp_path, "pinned", 4), "a")
        assert send_canary(endpoints).completion_tokens == 4
        assert (endpoints.router_metrics_url, endpoints.router_ready) == ("", "/health")
        assert not answers(f"{endpoints.router_url}/readiness")
        assert Watch(stack, endpoints.router_url, ready=endpoints.router_ready)._unserved(float("inf")) == ""


def test_each_balancer_that_the_settings_name_can_be_started() -> None:
    assert sorted(BALANCERS) == sorted(SETTINGS)


def test_a_free_port_is_free() -> None:
    port = free_port()
    assert check_port_free(port, "test") == port


def test_a_decode_that_serves_another_model_fails_the_canary(tmp_path: Path, stack: LocalStack) -> None:
    endpoints = stack.up(kernel(tmp_path, "pinned", 4), "a")
    with pytest.raises(NotReadyError, match="served model is 'sim-deepseek-v4-flash', not 'another'"):
        send_canary(replace(endpoints, model="another"))
