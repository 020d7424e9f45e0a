"""What the local stack needs of a kind of engine, be it SGLang or the simulated one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.engine import Command, Endpoints, Ports
from app.engine.proof import Proof
from app.kernel.placed import PlacedKernel


class Engine(Protocol):
    """Makes the command lines of one kind of server."""

    @property
    def name(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def model(self) -> str: ...

    @property
    def start_timeout_s(self) -> float: ...

    @property
    def single(self) -> bool:
        """Whether one server does prefill and decode, without a router."""

    def manifest(self) -> dict[str, str]:
        """Campaign-level facts that must be equal in all starts."""

    def prefill(self, ports: Ports, kernel: PlacedKernel) -> Command: ...

    def decode(self, ports: Ports, kernel: PlacedKernel, label: str) -> Command:
        """label names the start (block and position); it seeds what is drawn once per start."""

    def proof(self, endpoints: Endpoints, service: int, log: Path) -> Proof:
        """What the decode service that was started last runs. service: number of its first process; log: its output."""

    def discard(self) -> None:
        """Removes what was made for the services alone."""
