"""The stack as containers of one compose project; only the decode service is replaced between variants."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.engine import Endpoints
from app.engine.probe import wait_ready
from app.engine.proof import Proof, read_proof
from app.errors import ComposeMissingError, NotReadyError
from app.image.daemon import connect, told
from app.kernel.placed import PlacedKernel
from app.settings import NCCL_KEYS, Deployment
from app.stack.compose import Compose, compose_files
from app.stack.evidence import COMMAND, Evidence, read_evidence
from app.stack.process import COLOUR, LAST_LINES, last_words
from loadtest.client.key import without_key

PROJECT = "decode-ab"
# Its own project: a stack that `invoke up` started is neither used nor taken down by a campaign.
CAMPAIGN_PROJECT = f"{PROJECT}-campaign"
SERVERS = ("prefill", "decode", "router")
SIM_START_TIMEOUT_S = 120.0
SAY_EVERY_S = 5.0
STOP_S = "10"
CAMPAIGN = "io.decode-ab.campaign"
_LABEL = "com.docker.compose"


@dataclass(frozen=True, slots=True)
class Container:
    """One service's container. state: created, running, exited...; address: in the private network.

    campaign: the run folder that its label names; empty outside a campaign.
    """

    service: str
    id: str
    image_id: str
    state: str
    started_at: str
    exit_code: int
    health: str
    address: str
    campaign: str


class DockerStack:
    """Prefill, decode and router in containers. The host reaches the servers at their addresses on the private bridge.

    prefill: the kernel that the prefill service holds throughout; None for a stack that is only looked at or ended.
    extra: services to start besides. say: told what each service is doing while it starts. fresh: what an earlier
    process left running is taken down before the first start.
    """

    runtime = "docker"

    def __init__(
        self,
        settings: Deployment,
        engine: str,
        prefill: PlacedKernel | None,
        *,
        project: str = PROJECT,
        overrides: Sequence[str] = (),
        extra: Sequence[str] = (),
        logs: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
        fresh: bool = False,
    ) -> None:
        self.settings, self.engine, self.project = settings, engine, project
        self._prefill, self._extra, self._logs, self._say = prefill, tuple(extra), logs, say
        self._fresh = fresh
        self._compose = Compose(project, compose_files(engine, overrides))
        self._kernel: PlacedKernel | None = None
        self._label = ""

    @property
    def simulated(self) -> bool:
        return self.engine == "sim"

    @property
    def model(self) -> str:
        name = self.settings.served_model_name
        return f"sim-{name}" if self.simulated else name

    def manifest(self) -> dict[str, str]:
        kept: tuple[str, ...] = (
            "sglang_release",
            "cuda_arch",
            "prefill_tp",
            "decode_tp",
            "transfer_backend",
            "max_running_requests",
        )
        kept += (*NCCL_KEYS, "mem_fraction_static", "prefill_extra_args", "decode_extra_args", "prefill_selector")
        facts = {key: str(getattr(self.settings, key)) for key in kept}
        if self.simulated:
            facts["time_scale"] = f"{self.settings.sim_time_scale:g}"
        images = {"prefill_kernel": self._prefill.sha256 if self._prefill else ""}
        return {"runtime": self.runtime, "engine": self.engine, "model": self.model, **facts, **images}

    def up(self, kernel: PlacedKernel, label: str) -> Endpoints:
        if self._fresh:
            self._fresh = False
            self.down()
        # One call for each: compose would wait, in silence, for what a service depends on.
        self._compose_up(kernel, label, "prefill", "decode")
        self._compose_up(kernel, label, "router")
        endpoints = self._await_ready()
        if self._extra:
            self._compose_up(kernel, label, *self._extra)
        return endpoints

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        running = {c.service for c in self.containers() if c.state == "running"}
        if self._fresh or not running >= {"prefill", "router"}:
            return self.up(kernel, label)
        self.keep_log("decode")
        self._compose_up(kernel, label, "--force-recreate", "decode")
        return self._await_ready()

    def proof(self, endpoints: Endpoints) -> Proof:
        found = self.evidence("decode")
        # The simulated engine says more of itself, such as the drawn configuration.
        return read_proof(endpoints) if self.simulated else found.proof(self.model)

    def evidence(self, service: str) -> Evidence:
        """What a running service's container proves of itself; ProofError when it is not its image's."""
        code, output = self.run_inside(service, *COMMAND)
        container = next(c for c in self.containers() if c.service == service)
        return read_evidence(service, container.image_id, code, output)

    def alive(self) -> Sequence[str]:
        there = {c.service: c.state for c in self.containers()}
        return [name for name in SERVERS if there.get(name) != "running"]

    def tail(self, service: str, lines: int = 20) -> list[str]:
        found = [c for c in self.containers() if c.service == service]
        if not found:
            return []
        with told(f"reading {service}'s log"):
            text = COLOUR.sub("", connect().api.logs(found[0].id, tail=lines).decode(errors="replace"))
            # SGLang prints its arguments, the key among them (sgl-project/sglang#30166).
            return without_key(text, os.environ).splitlines()

    def down(self) -> None:
        for service in SERVERS:
            self.keep_log(service)
        try:
            self._compose.run(self._environment(), "down", "--volumes", "--remove-orphans", "--timeout", STOP_S)
        except ComposeMissingError as missing:
            self._remove_labelled()
            self._say(f"{missing}; what bears the label of {self.project} was removed without it")
        self._remove_volumes()
        self._kernel = None

    def containers(self) -> list[Container]:
        """Every container of the project, running or not."""
        with told(f"looking at project {self.project}"):
            api: Any = connect().api
            listed = api.containers(all=True, filters={"label": f"{_LABEL}.project={self.project}"})
            return [_container(api.inspect_container(item["Id"]), self.project) for item in listed]

    def run_inside(self, service: str, *command: str) -> tuple[int, str]:
        """Exit code and output of a command in a running service's container."""
        found = [c for c in self.containers() if c.service == service and c.state == "running"]
        if not found:
            raise NotReadyError(f"{service} is not running; bring the stack up first")
        with told(f"asking {service}"):
            api: Any = connect().api
            started = api.exec_create(found[0].id, list(command), stderr=True)["Id"]
            output = api.exec_start(started).decode(errors="replace")
            return int(api.exec_inspect(started)["ExitCode"]), output

    def keep_log(self, service: str) -> None:
        """Saves a service's log under the name of its start before its container goes."""
        if self._logs is None or not (lines := self.tail(service, 100_000)):
            return
        prefix = f"{self._label.replace('/', '-')}-" if service == "decode" and self._label else ""
        self._logs.mkdir(parents=True, exist_ok=True)
        (self._logs / f"{prefix}{service}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def __enter__(self) -> DockerStack:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _compose_up(self, kernel: PlacedKernel, label: str, *arguments: str) -> None:
        self._kernel, self._label = kernel, label
        flags = ("--detach", "--no-build", "--pull", "never", "--no-deps")
        self._compose.run(self._environment(), "up", *flags, *arguments)

    def _environment(self) -> dict[str, str]:
        settings, kernel, prefill = self.settings, self._kernel, self._prefill
        if prefill is not None:
            settings = replace(settings, prefill_image=prefill.image or "", prefill_selector=prefill.selector)
        if kernel is not None:
            settings = replace(
                settings,
                variant=kernel.variant,
                decode_image=kernel.image or "",
                decode_selector=kernel.selector,
                kernel_digest=kernel.sha256[:12],
                sim_start_seed=self._label,
            )
        return settings.environment()

    def _await_ready(self) -> Endpoints:
        timeout_s = SIM_START_TIMEOUT_S if self.simulated else float(self.settings.start_timeout_s)
        endpoints = self.endpoints()
        wait_ready(endpoints, timeout_s, _Watch(self, self._say).check)
        return endpoints

    def endpoints(self) -> Endpoints:
        """Where the running services answer; NotReadyError when one has ended."""
        there = {c.service: c for c in self.containers()}
        for service in SERVERS:
            if service not in there or there[service].state != "running":
                raise NotReadyError(self.ended(service, there.get(service)))
        return Endpoints(
            # Not by the published port: Docker's proxy process would merge the events whose times are measured.
            f"http://{there['router'].address}:{self.settings.router_port}",
            f"http://{there['prefill'].address}:{self.settings.prefill_port}",
            f"http://{there['decode'].address}:{self.settings.decode_port}",
            self.model,
        )

    def ended(self, service: str, container: Container | None) -> str:
        """One line on a service that does not run, with its last words."""
        if container is None:
            return f"{service} has no container; bring the stack up first"
        return f"{service} ended with exit code {container.exit_code}: {last_words(self.tail(service, LAST_LINES))}"

    def _remove_labelled(self) -> None:
        with told(f"removing project {self.project}"):
            api: Any = connect().api
            for container in self.containers():
                api.stop(container.id, timeout=int(STOP_S))
                api.remove_container(container.id, v=True, force=True)
            for network in api.networks(filters={"label": f"{_LABEL}.project={self.project}"}):
                api.remove_network(network["Id"])

    def _remove_volumes(self) -> None:
        # Compose forgets the cache volumes of variants that were switched away from.
        with told("removing cache volumes"):
            api: Any = connect().api
            found = api.volumes(filters={"label": f"{_LABEL}.project={self.project}"})["Volumes"] or []
            for volume in found:
                api.remove_volume(volume["Name"])


class _Watch:
    """Called over and over while services start: raises when one has ended, says now and then what each is doing."""

    def __init__(self, stack: DockerStack, say: Callable[[str], None]) -> None:
        self._stack, self._say = stack, say
        self._checked = self._said = time.monotonic()

    def check(self) -> None:
        now = time.monotonic()
        if now - self._checked < 1.0:
            return
        self._checked = now
        containers = self._stack.containers()
        for container in containers:
            if container.service in SERVERS and container.state != "running":
                raise NotReadyError(self._stack.ended(container.service, container))
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            for line in self._doing(containers):
                self._say(line)

    def _doing(self, containers: Sequence[Container]) -> Iterator[str]:
        for container in sorted(containers, key=lambda c: c.service):
            last = (self._stack.tail(container.service, 1) or [""])[0]
            yield f"{container.service}: {container.health or container.state}  {last[:100]}"


def _container(facts: dict[str, Any], project: str) -> Container:
    state, networks = facts["State"], facts["NetworkSettings"]["Networks"]
    return Container(
        service=facts["Config"]["Labels"].get(f"{_LABEL}.service", ""),
        id=facts["Id"],
        image_id=facts["Image"],
        state=state["Status"],
        started_at=state["StartedAt"],
        exit_code=state["ExitCode"],
        health=state.get("Health", {}).get("Status", ""),
        address=networks.get(f"{project}_lab", {}).get("IPAddress", ""),
        campaign=facts["Config"]["Labels"].get(CAMPAIGN, ""),
    )
