"""What `docker compose config` makes of every combination of files; needs the compose plugin and no daemon."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from functools import cache
from typing import Any

import pytest

from app.environment import ROOT
from app.settings import Deployment
from app.stack.compose import Compose, compose_files

pytestmark = pytest.mark.docker

OVERRIDES = ("compose.cuda-ipc.yml", "compose.rdma.yml", "compose.two-hosts.yml", "compose.workers.yml",
             "compose.key.yml", "compose.monitoring.yml")  # fmt: skip
# These say how the two servers are placed, each in its own way.
PLACING = {"compose.cuda-ipc.yml", "compose.two-hosts.yml"}
COMBINATIONS = [
    c for n in range(len(OVERRIDES) + 1) for c in itertools.combinations(OVERRIDES, n) if not {*c} >= PLACING
]
SETTINGS = {
    "HOST_IP": "192.0.2.5",
    "PREFILL_URLS": "http://192.0.2.5:30000",
    "DECODE_URLS": "http://192.0.2.6:30001",
    "SGLANG_KEY_FILE": "/secrets/sglang.yaml",
}
SERVERS = ("prefill", "decode")


@cache
def compose_here() -> bool:
    """Whether the plugin answers; CI must have it."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0


@cache
def rendered(engine: str, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    if not compose_here() and not os.environ.get("CI"):
        pytest.skip("no docker compose here; `. ci/docker.sh && start_docker` gives it")
    environment = {**os.environ, **SETTINGS} if overrides else dict(os.environ)
    command = Compose("decode-ab", compose_files(engine, overrides)).command("config", "--format", "json")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def services(engine: str, overrides: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    return dict(rendered(engine, overrides)["services"])


@pytest.mark.parametrize("engine", ["sglang", "sim"])
@pytest.mark.parametrize("overrides", COMBINATIONS, ids=lambda c: "+".join(n.split(".")[1] for n in c) or "plain")
def test_every_combination_is_safe(engine: str, overrides: tuple[str, ...]) -> None:
    for name, service in services(engine, overrides).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) in ([], ["IPC_LOCK"]), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert service["restart"] == "no", name
        assert service["logging"]["options"]["max-size"], name
        assert service["pids_limit"] > 0, name
        # Host namespaces would undo all of the above; the host's network is for two hosts alone.
        assert "host" not in (service.get("pid"), service.get("ipc")), name
        assert ("network_mode" in service) == ("compose.two-hosts.yml" in overrides and name in SERVERS), name
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1", name
            assert name in ("router", "loadtest", "grafana")
        text = json.dumps([service.get("environment"), service.get("command"), service.get("entrypoint")])
        assert not any(word in text.lower() for word in ("api-key", "api_key", "password", "token=")), name


@pytest.mark.parametrize("overrides", [(), ("compose.cuda-ipc.yml",)], ids=["plain", "cuda-ipc"])
def test_gpus_of_the_roles_are_disjoint(overrides: tuple[str, ...]) -> None:
    found = services("sglang", overrides)
    used = []
    for role in SERVERS:
        environment = found[role]["environment"]
        first, tp = (int(environment[f"{role.upper()}_{key}"]) for key in ("FIRST_GPU", "TP"))
        used.append(set(range(first, first + tp)))
        (device,) = found[role]["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", -1, ["gpu"])
    assert used == [{0, 1, 2, 3}, {4, 5, 6, 7}]


def test_simulated_stack_asks_for_no_gpu_and_no_model() -> None:
    for role in SERVERS:
        service = services("sim")[role]
        assert "deploy" not in service
        assert [volume["target"] for volume in service["volumes"]] == ["/cache"]
        assert service["image"].startswith("decode-ab-sim:")


def test_model_is_mounted_read_only_and_never_made() -> None:
    for role in SERVERS:
        model = next(v for v in services("sglang")[role]["volumes"] if v["target"] == "/model")
        assert (model["read_only"], model["bind"]) == (True, {"create_host_path": False})


def test_probes_wait_longer_than_a_server_may_take_to_answer() -> None:
    for role in SERVERS:
        health = services("sglang")[role]["healthcheck"]
        assert (health["timeout"], health["start_period"]) == ("30s", "1h0m0s")
        assert health["test"][-1].endswith("/health")


def test_router_is_probed_for_readiness_and_waits_for_both_servers() -> None:
    router = services("sglang")["router"]
    assert router["healthcheck"]["test"][-1].endswith("/readiness")
    assert {name: on["condition"] for name, on in router["depends_on"].items()} == dict.fromkeys(
        SERVERS, "service_healthy"
    )


def test_servers_are_on_the_internal_network_alone() -> None:
    assert rendered("sglang")["networks"]["lab"]["internal"] is True
    assert {role: list(services("sglang")[role]["networks"]) for role in SERVERS} == {role: ["lab"] for role in SERVERS}


def test_selector_is_set_for_each_role() -> None:
    found = {r: services("sglang")[r]["environment"]["SGLANG_SM120_FLASHMLA_BACKEND"] for r in SERVERS}
    assert found == {"prefill": "flashinfer", "decode": "triton"}


def test_shared_memory_is_private_or_shared_never_both() -> None:
    assert {services("sglang")[role]["shm_size"] for role in SERVERS} == {str(32 << 30)}
    shared = services("sglang", ("compose.cuda-ipc.yml",))
    assert (shared["prefill"]["ipc"], shared["decode"]["ipc"]) == ("shareable", "service:prefill")
    assert "shm_size" not in shared["decode"]
    assert shared["decode"]["pid"] == "service:prefill"


def test_caches_are_one_volume_named_by_kernel() -> None:
    volumes = rendered("sglang")["volumes"]
    assert volumes["decode-cache"]["name"] == "decode-ab_cache-any"
    assert [v["target"] for v in services("sglang")["decode"]["volumes"] if v["type"] == "volume"] == ["/cache"]


def test_key_travels_as_a_file() -> None:
    keyed = services("sglang", ("compose.key.yml",))
    assert [s["target"] for s in keyed["decode"]["secrets"]] == ["sglang.yaml"]
    assert "secrets" not in keyed["router"]


def test_workers_follow_the_master() -> None:
    found = services("sglang", ("compose.workers.yml",))
    assert "--master" in found["loadtest"]["command"]
    assert found["worker"]["command"][-3:] == ["--worker", "--master-host", "loadtest"]
    assert "ports" not in found["worker"]


def test_every_setting_reaches_a_container_or_a_build() -> None:
    """A setting of .env.example that no file mentions would be set in vain."""
    texts = "".join((ROOT / name).read_text() for name in ("docker-compose.yml", "compose.sim.yml"))
    unused = [key for key in Deployment().environment() if f"${{{key}:" not in texts]
    assert unused == []
