"""A fake installed sglang package with a kernel file, and the identity of an image that holds it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app.image.identity import Identity

KERNEL = "sglang/kernels/ops/attention/flash_mla_sm120_triton.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that holds an importable `sglang`; importing it would fail, as it does without torch."""
    site = tmp_path / "site"
    (site / KERNEL).parent.mkdir(parents=True)
    (site / "sglang" / "__init__.py").write_text("raise ImportError('sglang must not be imported')\n")
    (site / KERNEL).write_text("x = 1\n")
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture
def identity(package: Path) -> Identity:
    file = package / KERNEL
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Identity(
        variant="v2",
        control="pinned",
        engine="sglang",
        selector="triton",
        kernel="_kernel",
        kernel_file=str(file),
        kernel_sha256=digest,
        base_sha256="b" * 64,
        sglang_version="0.5.17",
        triton_version="3.6.0",
        cuda_arch=120,
        configs=("(16,4,3)",),
    )
