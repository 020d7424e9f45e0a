"""The decode service as it was started last: what proof and inspection hold against what they find."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.engine.sglang.package import PrivatePackage
from app.kernel.placed import PlacedKernel

if TYPE_CHECKING:
    from app.engine.sglang.prebuilt import Ahead


@dataclass(frozen=True, slots=True)
class Running:
    """arch: as in 90; rank_heads: query heads of one rank by the settings; path: calls that are forced.

    since: Unix time before which a cache entry is not of this start. ahead: what was compiled for it before; None where
    that was not asked for, or where it runs no kernel of the file.
    """

    kernel: PlacedKernel
    package: PrivatePackage
    arch: int
    rank_heads: int
    path: str
    evidence: Path
    triton_cache: Path
    since: float
    ahead: Ahead | None = None
