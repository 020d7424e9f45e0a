"""What the host code of a kernel's file launches: configurations of its list or its table, and the kernels beside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.kernel.patch import read_configs
from app.kernel.variant import KernelConfig
from kernels.geometry import Geometry
from kernels.signature import FOLDER, Signature, load_signature
from kernels.tuned import read_choices

# Triton's own number of pipeline stages, for a launch that names none.
DEFAULT_STAGES = 3


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel's launches. listed: from the autotune list, empty where it is never used; rows: the table's that
    choose a configuration, in words.
    """

    signature: Signature
    listed: tuple[KernelConfig, ...]
    rows: Mapping[KernelConfig, tuple[str, ...]]
    folder: Path

    @property
    def chosen(self) -> tuple[KernelConfig, ...]:
        """The table's configurations, each once."""
        return tuple(self.rows)

    def companions(self, configs: Iterable[KernelConfig]) -> list[tuple[Signature, KernelConfig]]:
        """The kernels that the host launches beside this one under any of these configurations, each launch once."""
        found = list[tuple[Signature, KernelConfig]]()
        for config in configs:
            for name in self.signature.companions_of(config):
                companion = load_signature(name, self.folder)
                shared = {name: value for name, value in config.constants.items() if name in companion.constants}
                launch = companion, KernelConfig(shared, companion.num_warps, DEFAULT_STAGES)
                found += [launch] if launch not in found else []
        return found


def read_launched(text: str, kernel: str, arch: int, geometry: Geometry, folder: Path = FOLDER) -> Launched:
    """The launches of `kernel` of the file `text` on an arch; SignatureError, PatchError or TableError says why not."""
    signature = load_signature(kernel, folder)
    choices, covered = read_choices(text, signature.table, arch, geometry) if signature.table else ([], False)
    listed = () if covered else tuple(read_configs(text, kernel))
    rows = {KernelConfig(c.constants, c.num_warps, c.num_stages): c.rows for c in choices}
    return Launched(signature, listed, rows, folder)
