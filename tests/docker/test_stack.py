"""The simulated stack in containers: up, switch, proof, refusals, and nothing left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.deployment.lifecycle import Lifecycle
from app.deployment.stable import promote, rollback
from app.engine.probe import send_canary
from app.engine.proof import check_proof, read_proof
from app.errors import NotReadyError, ProofError
from app.image.build import BuiltImage
from app.settings import Deployment
from app.stack.docker import DockerStack
from tests.docker.conftest import PROJECT, leftovers

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stack(built: dict[str, BuiltImage], settings: Deployment) -> Iterator[DockerStack]:
    with DockerStack(settings, "sim", built["flashinfer"].placed, project=f"{PROJECT}-stack") as made:
        made.up(built["v2"].placed, "block-000/start-00-v2")
        yield made


def test_stack_serves_what_its_image_holds(stack: DockerStack, built: dict[str, BuiltImage]) -> None:
    endpoints = stack.switch(built["v2"].placed, "a")
    assert send_canary(endpoints).decode_tokens_moved >= 1
    assert check_proof(stack.proof(endpoints), built["v2"].placed).config == "(16,4,3)"


def test_switch_replaces_decode_alone(stack: DockerStack, built: dict[str, BuiltImage]) -> None:
    before = {c.service: c.started_at for c in stack.containers()}
    began = time.monotonic()
    endpoints = stack.switch(built["v1"].placed, "b")
    send_canary(endpoints)
    print(f"switch to first tokens: {time.monotonic() - began:.2f} s")
    after = {c.service: c.started_at for c in stack.containers()}
    assert check_proof(read_proof(endpoints), built["v1"].placed).config == "(16,8,2)"
    assert [name for name in before if before[name] != after[name]] == ["decode"]


def test_evidence_is_read_inside_both_servers(stack: DockerStack, built: dict[str, BuiltImage]) -> None:
    stack.switch(built["v2"].placed, "c")
    found = {service: stack.evidence(service) for service in ("prefill", "decode")}
    assert found["decode"].kernel_sha256 == built["v2"].identity.kernel_sha256
    assert (found["prefill"].selector, found["decode"].selector) == ("flashinfer", "triton")


def test_containers_are_hardened(api: Any, stack: DockerStack) -> None:
    for container in stack.containers():
        host = api.inspect_container(container.id)["HostConfig"]
        assert (host["ReadonlyRootfs"], host["CapDrop"], host["Privileged"]) == (True, ["ALL"], False)
        assert "no-new-privileges:true" in host["SecurityOpt"]
        code, output = stack.run_inside(container.service, "sh", "-c", "id -u; touch /opt/lab/x")
        assert (code != 0, "10001" in output.splitlines()) == (True, True)


STATUS = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")


def test_kernel_holds_the_running_processes_to_it(stack: DockerStack) -> None:
    for service in ("prefill", "decode", "router"):
        code, output = stack.run_inside(service, "cat", "/proc/1/status")
        found = {k: v.split() for k, _, v in (line.partition(":") for line in output.splitlines()) if k in STATUS}
        assert code == 0
        assert (set(found.pop("Uid")), set(found.pop("Gid"))) == ({"10001"}, {"10001"})
        assert found.pop("NoNewPrivs") == ["1"]
        assert {int(mask, 16) for masks in found.values() for mask in masks} == {0}


def test_containers_see_no_socket_of_the_daemon_and_no_folder_of_the_host(api: Any, stack: DockerStack) -> None:
    for container in stack.containers():
        facts = api.inspect_container(container.id)
        assert {m["Type"] for m in facts["Mounts"]} <= {"volume", "tmpfs"}
        assert facts["HostConfig"]["PidsLimit"] == 4096
        assert {facts["HostConfig"][mode] for mode in ("PidMode", "UTSMode", "UsernsMode")} == {""}


def test_servers_are_on_a_network_without_a_way_out(api: Any, stack: DockerStack) -> None:
    for container in [c for c in stack.containers() if c.service != "router"]:
        names = api.inspect_container(container.id)["NetworkSettings"]["Networks"]
        assert [api.inspect_network(name)["Internal"] for name in names] == [True]


def test_only_the_router_is_published_and_on_loopback(api: Any, stack: DockerStack, settings: Deployment) -> None:
    bindings = [
        b for c in stack.containers() for b in api.inspect_container(c.id)["HostConfig"]["PortBindings"].values()
    ]
    assert bindings == [[{"HostIp": "127.0.0.1", "HostPort": str(settings.router_publish)}]]


def test_dead_decode_is_noticed_and_replaced(api: Any, stack: DockerStack, built: dict[str, BuiltImage]) -> None:
    decode = next(c for c in stack.containers() if c.service == "decode")
    api.kill(decode.id)
    assert stack.alive() == ["decode"]
    send_canary(stack.switch(built["v2"].placed, "d"))
    assert stack.alive() == []


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("decode_selector", "trition", "would silently select the slow PyTorch path"),
        ("decode_selector", "flashinfer", "variant v2 declares triton"),
    ],
)
def test_decode_refuses_to_start_with_a_wrong_selector(
    built: dict[str, BuiltImage], other_ports: Deployment, setting: str, value: str, said: str
) -> None:
    kernel = built["v2"].placed
    wrong = type(kernel)(
        kernel.variant, value, kernel.path, kernel.sha256, kernel.base_sha256, kernel.kernel, kernel.image
    )
    with (
        DockerStack(other_ports, "sim", built["flashinfer"].placed, project=f"{PROJECT}-wrong") as stack,
        pytest.raises(NotReadyError, match=f"decode ended with exit code 5: .*{said}"),
    ):
        stack.up(wrong, "e")


def test_server_refuses_a_kernel_file_that_was_changed(api: Any, built: dict[str, BuiltImage]) -> None:
    image, file = built["v2"].tags[0], built["v2"].identity.kernel_file
    command = f"printf '#' >> {file}; exec python3 -m app.container check"
    assert run_once(api, image, command) == (5, f"{file} has SHA-256")


def test_taking_down_leaves_nothing(api: Any, built: dict[str, BuiltImage], other_ports: Deployment) -> None:
    stack = DockerStack(other_ports, "sim", built["flashinfer"].placed, project=f"{PROJECT}-gone")
    stack.up(built["v1"].placed, "f")
    stack.switch(built["v2"].placed, "g")
    assert len(leftovers(api, f"{PROJECT}-gone")) == 3 + 3 + 2
    stack.down()
    stack.down()
    assert leftovers(api, f"{PROJECT}-gone") == []


def test_lifecycle_commands_are_safe_to_repeat(api: Any, lifecycle: Lifecycle) -> None:
    lifecycle.up("pinned", "sim")
    lifecycle.up("pinned", "sim")
    assert lifecycle.switch("v2").canary.completion_tokens == 4
    assert [e.identity.variant for e in lifecycle.verify()] == ["flashinfer", "v2"]
    lifecycle.down()
    lifecycle.down()
    assert leftovers(api) == []
    with pytest.raises(NotReadyError, match="no stack is up"):
        lifecycle.verify()


def test_rollback_puts_the_former_stable_image_back_into_the_running_stack(
    lifecycle: Lifecycle, other_ports: Deployment, tmp_path: Path
) -> None:
    lifecycle.up("pinned", "sim")
    for name in ("pinned", "v2"):
        promote(
            other_ports, name, "sim", force=True, reason="test", runs=tmp_path, state=tmp_path, ledger=tmp_path / "E.md"
        )
    lifecycle.switch("v2")
    former = rollback(other_ports, "sim", tmp_path)
    restored = lifecycle.restore("sim", former.tag)
    assert restored is not None
    assert lifecycle.verify()[1].identity.variant == "pinned"
    assert lifecycle.restore("sim", former.tag) is None


def test_verify_refuses_an_image_whose_labels_were_changed(
    api: Any, lifecycle: Lifecycle, built: dict[str, BuiltImage]
) -> None:
    lifecycle.up("v2", "sim")
    forged = forge(api, built["v2"].tags[1], {"io.decode-ab.kernel.sha256": "0" * 64})
    kernel = built["v2"].placed
    try:
        with pytest.raises(ProofError, match=r"decode: label io\.decode-ab\.kernel\.sha256 is '0000"):
            lifecycle.switch_to(
                type(kernel)(kernel.variant, kernel.selector, kernel.path, kernel.sha256, "", kernel.kernel, forged)
            )
    finally:
        lifecycle.down()
        api.remove_image(forged)


def forge(api: Any, image: str, labels: dict[str, str]) -> str:
    import io

    name = "decode-ab-test-forged:v2"
    dockerfile = io.BytesIO(f"FROM {image}\n".encode())
    list(api.build(fileobj=dockerfile, labels=labels, tag=name, rm=True))
    return name


def run_once(api: Any, image: str, command: str) -> tuple[int, str]:
    """Exit code of a shell command run as root in an image, and the start of the lab's last line."""
    made = api.create_container(image, entrypoint=["sh", "-c", command], user="root")["Id"]
    try:
        api.start(made)
        code = int(api.wait(made)["StatusCode"])
        last = api.logs(made).decode().strip().splitlines()[-1]
        return code, last.removeprefix("decode-ab: ")[: last.find("SHA-256") - len("decode-ab: ") + len("SHA-256")]
    finally:
        api.remove_container(made, force=True)
