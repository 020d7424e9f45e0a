"""The stack of prefill, decode and router, and where it runs: as local processes or under compose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from app.engine import Endpoints
from app.kernel.placed import PlacedKernel

if TYPE_CHECKING:
    from app.engine.inspection import Inspection
    from app.engine.proof import Proof


class Stack(Protocol):
    """A prefill/decode/router stack whose decode service alone is replaced between variants.

    Every method is safe to repeat; NotReadyError carries the last log lines of the service that failed.
    """

    @property
    def runtime(self) -> str: ...

    @property
    def simulated(self) -> bool: ...

    def manifest(self) -> dict[str, str]:
        """Campaign-level facts: engine, versions, flags. Equal in all starts of a campaign."""

    def up(self, kernel: PlacedKernel, label: str) -> Endpoints:
        """Starts all services with decode on this kernel and waits until the router is ready."""

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        """Replaces decode alone and waits until the router is ready again."""

    def proof(self, endpoints: Endpoints) -> Proof:
        """What the running decode service itself says of the kernel it runs; ProofError when it says nothing."""

    def alive(self) -> Sequence[str]:
        """Names of services that have ended though they should run; empty when all run."""

    def tail(self, service: str, lines: int = 20) -> list[str]:
        """The service's last log lines."""

    def down(self) -> None:
        """Ends everything this stack started."""


@runtime_checkable
class InspectableStack(Protocol):
    """A stack that shows more of a start once its load is over."""

    def inspect(self, endpoints: Endpoints, asked: Inspection) -> dict[str, Any]:
        """Evidence to add to the start's, none where the engine has none; ProofError where it speaks against it."""
