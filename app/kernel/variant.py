"""What a variant is: a named change to one kernel, with its hypothesis and its control's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Selector = Literal["triton", "flashinfer", "flashmla"]


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One launch configuration: the kernel's constants, warps a program, pipeline stages of its loops."""

    constants: Mapping[str, int | bool | str]
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        if list(self.constants) == ["BLOCK_T"]:
            return f"({self.constants['BLOCK_T']},{self.num_warps},{self.num_stages})"
        named = {**self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}
        return f"({', '.join(f'{name}={value}' for name, value in named.items())})"

    def __hash__(self) -> int:
        return hash((frozenset(self.constants.items()), self.num_warps, self.num_stages))


@dataclass(frozen=True, slots=True)
class Target:
    """The kernel that a variant changes: dotted import path of its module, name of its function."""

    module: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the kernel's file: first swapped for `file`, then rewritten in place.

    file: path inside this repository. constants: module-level names and the literals they are to hold.
    """

    file: Path | None = None
    configs: tuple[KernelConfig, ...] | None = None
    key: tuple[str, ...] | None = None
    constants: Mapping[str, object] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether the file stays as it is."""
        return self == Change()


@dataclass(frozen=True, slots=True)
class Variant:
    """A named change with its hypothesis; prediction: percent of output tok/s against control, by concurrency."""

    name: str
    control: str | None
    selector: Selector
    target: Target | None
    change: Change
    hypothesis: str
    prediction: Mapping[int, tuple[float, float]]
    status: str
    path: Path
