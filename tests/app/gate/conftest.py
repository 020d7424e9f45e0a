"""What compiling takes long for and several files look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.gate.prebuilt import Prebuilt, prebuild
from app.kernel.patch import PatchedKernel, patch_kernel
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from kernels.geometry import Geometry


def prebuilt(patched: PatchedKernel) -> Prebuilt:
    return prebuild(patched.text, str(patched.kernel), Path("/opt/kernel_file.py"), 120, Geometry(16, 1))


@pytest.fixture(scope="session")
def pinned() -> PatchedKernel:
    return patch_kernel(fetch_base(), load_variants().get("pinned"))


@pytest.fixture(scope="session")
def pinned_entries(pinned: PatchedKernel) -> Prebuilt:
    """Cache entries of `pinned` for sm_120."""
    return prebuilt(pinned)
