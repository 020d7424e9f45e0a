"""The verdict of a campaign as values for drawing, read from verdict.json; effects and intervals in percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from app.errors import RecordsError
from loadtest.judge.facts import MIN_BLOCKS
from loadtest.judge.interaction import Estimate
from loadtest.judge.verdict import check_verdict

Range = tuple[float, float]
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Level:
    """A variant against its control at one concurrency; the fields are those of verdict.schema.json.

    differences are the blocks' own effects, in the order of the blocks that were used.
    """

    concurrency: int
    outcome: str
    n_blocks: int
    effect_pct: float | None
    low_pct: float | None
    high_pct: float | None
    simultaneous_low_pct: float | None
    simultaneous_high_pct: float | None
    p: float | None
    p_holm: float | None
    mde_pct: float | None
    blocks_to_decide: int | None
    hodges_lehmann_pct: float | None
    doubt: bool
    differences: tuple[float, ...]
    modes: Mapping[str, Any] | None

    @property
    def simultaneous(self) -> Range | None:
        """The interval that holds for all concurrencies together."""
        return _range(self.simultaneous_low_pct, self.simultaneous_high_pct)


@dataclass(frozen=True, slots=True)
class Secondary:
    """Change of a latency figure; positive is slower, the interval is pointwise and no verdict hangs on it."""

    metric: str
    concurrency: int
    effect_pct: float
    low_pct: float
    high_pct: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A variant's decision with what it rests on; stamps are facts beside it, such as a drawn autotune choice.

    waiting: blocks of the plan are missing, or fewer were used than a verdict needs.
    """

    variant: str
    control: str
    decision: str
    reason: str
    stamps: tuple[str, ...]
    blocks: tuple[int, ...]
    levels: tuple[Level, ...]
    overall: Estimate | None
    per_doubling: Estimate | None
    shape: str
    crossover: bool
    secondary: tuple[Secondary, ...]
    waiting: bool

    def level(self, concurrency: int) -> Level | None:
        """The level judged at a concurrency, None where there is none."""
        return next((level for level in self.levels if level.concurrency == concurrency), None)


def judged_variants(verdict: Mapping[str, Any]) -> tuple[Judged, ...]:
    """Every variant of a verdict; InvalidCampaignError or RecordsError when it is not one of this version."""
    check_verdict(verdict)
    try:
        return tuple(_judged(v, verdict["interim"]) for v in verdict["variants"])
    except (KeyError, TypeError) as e:
        raise RecordsError(f"verdict.json lacks {e}; judge the campaign again") from e


def _judged(data: Mapping[str, Any], interim: bool) -> Judged:
    interaction = data["interaction"] or {}
    return Judged(
        variant=data["variant"],
        control=data["control"],
        decision=data["decision"],
        reason=data["reason"],
        stamps=tuple(data["stamps"]),
        blocks=tuple(data["blocks"]),
        levels=tuple(_picked(Level, level) for level in data["levels"]),
        overall=_picked(Estimate, data["overall"]) if data["overall"] else None,
        per_doubling=_picked(Estimate, interaction["per_doubling"]) if interaction else None,
        shape=interaction.get("shape", ""),
        crossover=interaction.get("crossover", False),
        secondary=tuple(_picked(Secondary, s) for s in data["secondary"]),
        waiting=interim or len(data["blocks"]) < MIN_BLOCKS,
    )


def _picked(kind: type[V], data: Mapping[str, Any]) -> V:
    values = {f.name: data[f.name] for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _range(low: float | None, high: float | None) -> Range | None:
    return None if low is None or high is None else (low, high)
