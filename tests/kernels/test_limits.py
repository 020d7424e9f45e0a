"""Occupancy of sm_120 and sm_90, held against kernels whose figures are known."""

from __future__ import annotations

import pytest

from kernels.limits import LIMITS


@pytest.mark.parametrize(
    ("arch", "shared_bytes", "registers", "num_warps", "ctas"),
    [
        (120, 48 * 1024, 180, 4, 2),
        (120, 50 * 1024, 180, 4, 1),  # two CTAs reserve 1 KB each beside their own
        (120, 101376, 64, 4, 1),
        (120, 101377, 64, 4, 0),
        (120, 0, 255, 4, 2),
        (120, 0, 32, 8, 6),  # 48 warps
        (120, 0, 16, 1, 24),
        (120, 0, 255, 16, 0),
        (90, 232448, 64, 4, 1),
        (90, 232449, 64, 4, 0),
        (90, 0, 32, 8, 8),  # 64 warps
        (90, 66 * 1024, 180, 4, 2),
    ],
)
def test_ctas_per_sm(arch: int, shared_bytes: int, registers: int, num_warps: int, ctas: int) -> None:
    assert LIMITS[arch].ctas_per_sm(shared_bytes, registers, num_warps) == ctas
