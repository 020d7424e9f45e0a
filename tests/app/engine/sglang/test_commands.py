"""Command lines of the servers, held against the flags that the released wheels themselves define."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine.sglang.commands import server_command
from app.settings import Deployment
from tests.app.engine.sglang.wheel_flags import RELEASES, check_arguments, flags, values

EVERYTHING = Deployment(
    transfer_backend="mooncake",
    ib_device="mlx5_0",
    mem_fraction_static="0.93",
    prefill_nodes=2,
    decode_nodes=2,
    dist_init_addr="192.0.2.1:20000",
    decode_first_gpu=2,
    host_ip="192.0.2.1",
)


def pairs(argv: tuple[str, ...]) -> list[tuple[str, str | None]]:
    return [(flag, words[0] if words else None) for flag, words in values(argv)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("settings", [Deployment(), EVERYTHING], ids=["defaults", "everything"])
def test_every_flag_is_one_of_the_release(release: str, role: str, settings: Deployment) -> None:
    argv = server_command(role, replace(settings, sglang_release=release), "/model", "/run/key.yaml").argv
    assert argv[:2] == ("sglang", "serve")
    check_arguments(release, argv[2:])


def test_a_flag_that_went_away_would_be_noticed() -> None:
    assert "--cuda-graph-max-bs-decode" in flags("0.5.17").keys() & flags("0.5.23").keys()
    assert "--disaggregation-enable-kv-checksum" not in flags("0.5.17")
    assert "--prefill-only" not in flags("0.5.17").keys() | flags("0.5.23").keys()


def test_roles_start_at_their_own_gpus() -> None:
    prefill, decode = (dict(pairs(server_command(r, Deployment(), "/m").argv)) for r in ("prefill", "decode"))
    assert (prefill.get("--base-gpu-id"), decode.get("--base-gpu-id")) == (None, "4")
    assert prefill["--tp-size"] == decode["--tp-size"] == "4"


def test_both_roles_state_the_bootstrap_port_and_backend() -> None:
    given = [dict(pairs(server_command(r, Deployment(), "/m").argv)) for r in ("prefill", "decode")]
    for flag in ("--disaggregation-bootstrap-port", "--disaggregation-transfer-backend"):
        assert len({roles[flag] for roles in given}) == 1
    assert [roles["--disaggregation-mode"] for roles in given] == ["prefill", "decode"]


def test_a_role_on_one_host_has_no_rendezvous() -> None:
    given = dict(pairs(server_command("decode", Deployment(), "/m").argv))
    assert not {"--nnodes", "--node-rank", "--dist-init-addr"} & given.keys()


def test_two_host_servers_bind_and_advertise_their_own_address() -> None:
    command = server_command("prefill", EVERYTHING, "/m")
    assert dict(pairs(command.argv))["--host"] == command.env["SGLANG_HOST_IP"] == "192.0.2.1"


def test_more_flags_come_last_and_are_split_as_a_shell_would() -> None:
    argv = server_command("decode", Deployment(decode_extra_args="--log-level 'warning'"), "/m").argv
    assert argv[-2:] == ("--log-level", "warning")


def test_health_probes_add_no_requests() -> None:
    assert server_command("decode", Deployment(), "/m").env["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"
