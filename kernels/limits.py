"""What one streaming multiprocessor of each target holds, and how many CTAs of a kernel fit on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024
# CUDA keeps this much shared memory of every CTA for itself, outside the CTA's own limit.
RESERVED_BYTES = KIB
WARP_REGISTER_UNIT = 256
# Warps are dealt to four schedulers, each with a quarter of the register file.
SCHEDULERS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Per-SM resources of a compute capability (CUDA programming guide, table of technical specifications)."""

    arch: int
    sm_shared_bytes: int
    cta_shared_bytes: int
    warps: int
    ctas: int
    registers: int = 64 * KIB

    @property
    def name(self) -> str:
        """As CUDA writes it."""
        return f"sm_{self.arch}"

    def ctas_per_sm(self, shared_bytes: int, registers: int, num_warps: int) -> int:
        """CTAs resident on one SM: 0 when one alone does not fit. registers is per thread."""
        if shared_bytes > self.cta_shared_bytes or num_warps > self.warps:
            return 0
        by_shared = self.sm_shared_bytes // (shared_bytes + RESERVED_BYTES)
        per_warp = -(-registers * 32 // WARP_REGISTER_UNIT) * WARP_REGISTER_UNIT
        warps_by_registers = self.registers // SCHEDULERS // max(per_warp, 1) * SCHEDULERS
        dealt_warps = -(-num_warps // SCHEDULERS) * SCHEDULERS
        return min(self.ctas, by_shared, warps_by_registers // dealt_warps, self.warps // num_warps)


LIMITS: Mapping[int, Limits] = {
    90: Limits(90, 228 * KIB, 227 * KIB, warps=64, ctas=32),
    120: Limits(120, 100 * KIB, 99 * KIB, warps=48, ctas=24),
}
