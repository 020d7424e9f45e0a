"""Tables of what stands behind a verdict tell their rows apart."""

from __future__ import annotations

from dataclasses import replace

from app.kernel.variant import KernelConfig
from app.report.campaign_view import CampaignView
from app.report.evidence import resources_grid
from kernels.resources import Resources


def test_configurations_compiled_for_two_uses_of_a_kernel_are_told_apart(view: CampaignView) -> None:
    built = Resources(KernelConfig({"BLOCK_T": 16}, 4, 1), 120, "3.6.0", shared_bytes=40576, registers=162, num_warps=4)
    configs = [replace(built, use=use).to_json() for use in ("two caches", "one cache", "")]
    grid = resources_grid(replace(view, gate={"mine": {"configs": configs}}))
    assert [row[:2] for row in grid.rows] == [
        ("mine", "(16,4,1) two caches"),
        ("mine", "(16,4,1) one cache"),
        ("mine", "(16,4,1)"),
    ]
