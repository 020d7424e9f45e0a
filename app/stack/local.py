"""The stack as local processes on loopback: no Docker, no root."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.engine import Command, Endpoints, Ports
from app.engine.inspection import Inspectable, Inspection
from app.engine.kind import Engine
from app.engine.probe import wait_ready
from app.engine.proof import Proof
from app.errors import NotReadyError
from app.kernel.placed import PlacedKernel
from app.stack.process import Service
from app.stack.router import BALANCERS, mini_command, router_command


class LocalStack:
    """Prefill, decode and the real router as child processes; a context manager that leaves nothing running.

    An engine that serves alone is one process: decode, asked directly. balancer: of `BALANCERS`, by name.
    """

    runtime = "local"

    def __init__(self, engine: Engine, logs: Path, router_port: int | None = None, balancer: str = "rust") -> None:
        self.engine, self._logs, self._router_port = engine, logs, router_port
        self._balancer = BALANCERS[balancer]
        self._services: dict[str, Service] = {}
        self._ports: Ports | None = None
        self._began = self._ready_s = 0.0

    @property
    def simulated(self) -> bool:
        return self.engine.simulated

    def manifest(self) -> dict[str, str]:
        router = "none" if self.engine.single else self._balancer.told
        return {"runtime": self.runtime, "router": router, **self.engine.manifest()}

    def up(self, kernel: PlacedKernel, label: str) -> Endpoints:
        if self._ports is not None:
            return self.switch(kernel, label)
        self._ports = ports = _free_ports(self._router_port)
        try:
            if not self.engine.single:
                self._start("prefill", self.engine.prefill(ports, kernel), "prefill")
            self._start("decode", self.engine.decode(ports, kernel, label), label)
            if not self.engine.single:
                self._start("router", self._router(ports), "router")
            return self._await_ready()
        except BaseException:
            self.down()
            raise

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        if self._ports is None:
            return self.up(kernel, label)
        self._services["decode"].stop()
        self._start("decode", self.engine.decode(self._ports, kernel, label), label)
        return self._await_ready()

    def proof(self, endpoints: Endpoints) -> Proof:
        decode = self._services["decode"]
        if decode.pid is None:
            raise NotReadyError("decode is down; bring the stack up first")
        proof = self.engine.proof(endpoints, decode.pid, decode.log)
        # A simulated start takes no time worth keeping.
        return replace(proof, evidence={**proof.evidence, "ready_s": self._ready_s}) if proof.evidence else proof

    def inspect(self, endpoints: Endpoints, asked: Inspection) -> dict[str, Any]:
        service = self.pid("decode")
        if service is None or not isinstance(self.engine, Inspectable):
            return {}
        return self.engine.inspect(endpoints, service, asked)

    def alive(self) -> Sequence[str]:
        return [name for name, service in self._services.items() if not service.running]

    def pid(self, service: str) -> int | None:
        """Process id of a service; None when it is not up."""
        return self._services[service].pid if service in self._services else None

    def tail(self, service: str, lines: int = 20) -> list[str]:
        return self._services[service].tail(lines) if service in self._services else []

    def down(self) -> None:
        for name in ("router", "decode", "prefill"):
            if name in self._services:
                self._services.pop(name).stop()
        self._ports = None
        self.engine.discard()

    def __enter__(self) -> LocalStack:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _start(self, name: str, command: Command, label: str) -> None:
        log = self._logs / f"{label.replace('/', '-')}-{name}.log" if label != name else self._logs / f"{name}.log"
        self._services[name] = service = Service(name, command, log)
        self._began = time.monotonic() if name == "decode" else self._began
        service.start()

    def _router(self, ports: Ports) -> Command:
        prefill, decode = [f"http://127.0.0.1:{ports.prefill}"], [f"http://127.0.0.1:{ports.decode}"]
        if not self._balancer.metrics:
            return mini_command(prefill, decode, ports.bootstrap, port=ports.router)
        return router_command(
            prefill,
            decode,
            ports.bootstrap,
            port=ports.router,
            prometheus_port=ports.router_metrics,
            health_interval_s=1,
            startup_timeout_s=int(self.engine.start_timeout_s),
        )

    def _await_ready(self) -> Endpoints:
        if self._ports is None:
            raise NotReadyError("the stack is down; bring it up first")
        endpoints = self._endpoints(self._ports)
        wait_ready(endpoints, self.engine.start_timeout_s, self._check_alive)
        self._ready_s = round(time.monotonic() - self._began, 2)
        return endpoints

    def _endpoints(self, ports: Ports) -> Endpoints:
        decode = f"http://127.0.0.1:{ports.decode}"
        if self.engine.single:
            return Endpoints(decode, decode, decode, self.engine.model)
        return Endpoints(
            f"http://127.0.0.1:{ports.router}",
            f"http://127.0.0.1:{ports.prefill}",
            decode,
            self.engine.model,
            f"http://127.0.0.1:{ports.router_metrics}" if self._balancer.metrics else "",
            self._balancer.ready,
        )

    def _check_alive(self) -> None:
        for name in self.alive():
            service = self._services[name]
            told = service.last_words()
            raise NotReadyError(f"{name} ended with exit code {service.exit_code}: {told} (log: {service.log})")


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port_free(port: int, what: str) -> int:
    """The port itself; NotReadyError when something listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as e:
            raise NotReadyError(f"port {port} for the {what} is in use; stop what holds it or choose another") from e
    return port


def _free_ports(router_port: int | None) -> Ports:
    router = free_port() if router_port is None else check_port_free(router_port, "router")
    return Ports(router, free_port(), free_port(), free_port(), free_port())
