"""What stands behind prefill and decode: `sglang` (real) or `sim` (simulated timing, no GPU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# What an engine's word on its path begins with where it is forced, and ends with where one rank runs alone.
FORCED, ALONE = "path forced", "alone, nothing is exchanged"


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
