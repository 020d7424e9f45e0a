"""What stands behind prefill and decode: `sglang` (real) or `sim` (simulated timing, no GPU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.kernel.placed import PlacedKernel

if TYPE_CHECKING:
    from app.engine.proof import Proof


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start: argument list and the environment variables it needs on top of a clean one."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of one stack."""

    router: int
    prefill: int
    decode: int
    bootstrap: int
    router_metrics: int


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Base URLs of a running stack and the model name it serves; the router's metrics where this host reaches them.

    router_ready: path of the router's own word that it serves.
    """

    router_url: str
    prefill_url: str
    decode_url: str
    model: str
    router_metrics_url: str = ""
    router_ready: str = "/readiness"

    @property
    def routed(self) -> bool:
        """Whether a router stands before the servers; one server that does all is asked directly."""
        return self.router_url != self.decode_url


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
