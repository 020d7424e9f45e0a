"""Command lines of the servers, held against the flags that the released wheels themselves define."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pytest

from app.deployment import Deployment
from app.engine.sglang.commands import server_command
from app.upstream import default_cache, fetch_wheel, pinned

RELEASES = ("0.5.17", "0.5.23")
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


@dataclass(frozen=True)
class Flag:
    """One field of ServerArgs as the wheel's source declares it."""

    kind: str
    choices: tuple[str, ...]


@lru_cache
def flags(release: str) -> dict[str, Flag]:
    with zipfile.ZipFile(fetch_wheel(pinned(release), default_cache())) as wheel:
        files = [n for n in wheel.namelist() if n == "sglang/srt/server_args.py" or "/arg_groups/fields/" in n]
        trees = [ast.parse(wheel.read(name)) for name in files if name.endswith(".py")]
    return {flag: found for tree in trees for node in ast.walk(tree) for flag, found in declared(node)} | {
        # The one flag that is no field: it is expanded before parsing.
        "--config": Flag("str", ())
    }


def declared(node: ast.AST) -> Iterator[tuple[str, Flag]]:
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
        return
    text = ast.unparse(node.annotation)
    if not text.startswith("A["):
        return
    kind = text.removeprefix("A[").partition(",")[0]
    literal = ast.unparse(node.annotation.slice.elts[0])  # type: ignore[attr-defined]
    choices = ast.literal_eval(literal.removeprefix("Literal")) if literal.startswith("Literal[") else ()
    yield f"--{node.target.id.replace('_', '-')}", Flag(kind, tuple(choices))


def pairs(argv: tuple[str, ...]) -> list[tuple[str, str | None]]:
    found = []
    for at, word in enumerate(argv):
        if word.startswith("--"):
            following = argv[at + 1] if at + 1 < len(argv) else "--"
            found.append((word, None if following.startswith("--") else following))
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("settings", [Deployment(), EVERYTHING], ids=["defaults", "everything"])
def test_every_flag_is_one_of_the_release(release: str, role: str, settings: Deployment) -> None:
    known = flags(release)
    argv = server_command(role, replace(settings, sglang_release=release), "/model", "/run/key.yaml").argv
    assert argv[:2] == ("sglang", "serve")
    for flag, value in pairs(argv[2:]):
        assert flag in known, f"{flag} is unknown to SGLang {release}"
        assert (value is None) == (known[flag].kind == "bool"), f"{flag} {value}"
        assert not known[flag].choices or value in known[flag].choices
        assert "int" not in known[flag].kind or str(value).isdigit(), f"{flag} {value}"


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
