"""Command lines of local servers, held against the flags that both released wheels define."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from app.engine import Ports
from app.engine.sglang.local import Role, server_arguments
from app.engine.sglang.served import Served, read_served, split_settings
from app.environment import ROOT
from app.errors import UsageError
from tests.app.engine.sglang.wheel_flags import RELEASES, check_arguments, values

PORTS = Ports(router=1, prefill=2, decode=3, bootstrap=4, router_metrics=5)
FULL = Served(model="/models/V4", max_total_tokens=9, tp=4, prefill_gpu=4, extra_args="--log-level 'warning'")


def arguments(role: Role, served: Served) -> dict[str, list[str]]:
    return dict(values(server_arguments(role, served, Path("/m"), PORTS)))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("role", ["single", "prefill", "decode"])
@pytest.mark.parametrize("served", [Served(), FULL], ids=["dummy", "everything"])
def test_every_flag_is_one_of_the_release(release: str, role: Role, served: Served) -> None:
    check_arguments(release, server_arguments(role, replace(served, release=release), Path("/m"), PORTS))


def test_an_unknown_flag_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="--cuda-graph-max-bs-of-old is unknown"):
        check_arguments("0.5.17", ["--cuda-graph-max-bs-of-old", "1"])


def test_one_server_knows_nothing_of_disaggregation() -> None:
    assert not [flag for flag in arguments("single", Served()) if "disaggregation" in flag]


def test_both_roles_state_one_bootstrap_port_and_backend() -> None:
    prefill, decode = (arguments(role, Served()) for role in ("prefill", "decode"))
    for flag in ("--disaggregation-bootstrap-port", "--disaggregation-transfer-backend"):
        assert prefill[flag] == decode[flag]
    assert (prefill["--port"], decode["--port"]) == (["2"], ["3"])


def test_a_model_of_ones_own_is_loaded_with_its_weights() -> None:
    assert arguments("single", Served())["--load-format"] == ["dummy"]
    assert "--load-format" not in arguments("single", FULL)


@pytest.mark.parametrize("cards", [4, 8])
def test_each_role_has_half_of_the_cards(cards: int) -> None:
    served = read_served({"tp": str(cards // 2), "decode_gpu": str(cards // 2)})
    prefill, decode = arguments("prefill", served), arguments("decode", served)
    assert (prefill["--base-gpu-id"], decode["--base-gpu-id"]) == (["0"], [str(cards // 2)])
    assert prefill["--tp-size"] == decode["--tp-size"] == [str(cards // 2)]


def test_roles_that_share_some_cards_are_refused() -> None:
    with pytest.raises(UsageError, match="prefill_gpu=0 and decode_gpu=2 share some GPUs at tp=4; let decode begin 4"):
        Served(tp=4, decode_gpu=2)
    assert Served(topology="single", tp=4, decode_gpu=2).tp == 4


def test_prefill_captures_no_decode_graphs() -> None:
    assert "--disable-cuda-graph" in arguments("prefill", Served())
    assert arguments("decode", Served())["--cuda-graph-bs-decode"] == ["1", "8", "48", "64", "80", "96"]


def test_settings_are_read_from_pairs() -> None:
    served = read_served(split_settings("heads=16, topology=single,graph_batches=1+32,max_running=32,light=false"))
    assert (served.heads, served.single, served.graph_batches, served.light) == (16, True, (1, 32), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heads", "no KEY=VALUE"),
        ("head=16", "unknown server setting 'head'"),
        ("heads=many", "heads=many: a whole number is needed"),
        ("topology=ring", "unknown topology 'ring'; known: pd, single"),
        ("balancer=nginx", "unknown balancer 'nginx'; known: mini, rust"),
        ("balancer=mini,topology=single", "topology=single has neither"),
        ("max_running=128", "would run without a graph"),
        ("light=perhaps", "true or false is needed"),
        ("extra_args='", "No closing quotation"),
    ],
)
def test_settings_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        server_arguments("single", read_served(split_settings(text)), Path("/m"), PORTS)


def test_every_setting_stands_in_the_page_on_gpus() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    missing = [f.name for f in fields(Served) if f.name != "model" and f"`{f.name}`" not in page]
    assert missing == []
