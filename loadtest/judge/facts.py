"""What a verdict needs beside cells: so many blocks, and what gate and proof say of each variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIN_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """What gate and proof say of a variant; stamps are printed beside its decision."""

    autotune_drawn: bool = False
    same_code: bool = False
    proof_ok: bool = True
    stamps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the verdict must know beside cells; a variant without facts counts as proven, drawn from one config.

    campaign: the run's name. time_scale: simulated seconds per wall second. notes are printed with the verdict,
    warnings at its top.
    """

    campaign: str
    simulated: bool
    variants: Mapping[str, VariantFacts] = field(default_factory=dict)
    time_scale: float = 1.0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, variant: str) -> VariantFacts:
        """The facts of one variant."""
        return self.variants.get(variant, VariantFacts())
