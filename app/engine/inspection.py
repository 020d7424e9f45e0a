"""What a start is to show once its load is over: things that would disturb a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from app.engine import Endpoints
from loadtest.client.prompts import PromptList
from loadtest.plan import Lengths


@dataclass(frozen=True, slots=True)
class Inspection:
    """controls: each judged variant's control; concurrency: the start's highest; folder: where the start is kept."""

    variant: str
    controls: Mapping[str, str]
    concurrency: int
    lengths: Lengths
    folder: Path

    def prompts(self, count: int) -> list[str]:
        """The same texts for every start of every campaign with these lengths."""
        held = PromptList("inspection", self.lengths)
        return [held.prompt(count, slot, 0).text for slot in range(count)]


@runtime_checkable
class Inspectable(Protocol):
    """An engine that shows more of a start than its proof."""

    def inspect(self, endpoints: Endpoints, service: int, asked: Inspection) -> dict[str, Any]:
        """Evidence to add to the start's; ProofError where it speaks against the start. service: as `Engine.proof`."""
