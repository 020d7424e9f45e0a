"""What stands behind prefill and decode: `sglang` (real) or `sim` (simulated timing, no GPU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from app.proof import Proof
    from app.stack import Endpoints


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
class PlacedKernel:
    """A variant's kernel, ready to run: the patched file on disk with its hashes, and the selector that reaches it.

    kernel names the autotuned function in the file, None for a variant that changes the selector alone; image is the
    tag that holds it, where a runtime uses images.
    """

    variant: str
    selector: str
    path: Path
    sha256: str
    base_sha256: str
    kernel: str | None
    image: str | None = None


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
