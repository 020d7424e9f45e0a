from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import NotReadyError
from app.gate.bench import bench_kernels

pytestmark = pytest.mark.kernel


def test_a_machine_without_a_gpu_is_told_so_before_anything_is_placed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotReadyError, match="no CUDA GPU here"):
        bench_kernels("pinned", str(tmp_path / "rows.csv"), "", sweep=False)
    assert list(tmp_path.iterdir()) == []
