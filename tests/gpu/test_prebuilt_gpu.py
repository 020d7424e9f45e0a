"""On a real GPU: after the prebuilt entries are in place, the first launches leave no new entry in Triton's cache."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.environment import ROOT
from app.gate.prebuilt import prebuild
from app.gate.seeding import seed
from app.kernel.patch import patch_kernel
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from kernels.geometry import Geometry

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


# A process of its own: Triton keeps what it has compiled, and looks into its folder no more.
LAUNCH = """
import json, sys
from pathlib import Path
from tests.gpu.test_prebuilt_gpu import launch_all
print(json.dumps(launch_all(Path(sys.argv[1]))))
"""


def launch_all(file: Path) -> list[bool]:
    """Launches the entry point for several batches, with one cache and two of either page; one entry a launch."""
    from tests.app.gate.test_prebuilt import PAGES, launch

    spec = importlib.util.spec_from_file_location("kernel_file", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.set_default_device("cuda")
    done = []
    for batch in (1, 3, 8, 48, 96):
        for extra in PAGES:
            launch(module.flash_mla_sparse_decode_triton, batch, extra)
            torch.cuda.synchronize()
            done.append(True)
    return done


@pytest.mark.parametrize("variant", ["upstream", "v2", "fast"])
def test_first_launches_compile_nothing(variant: str, tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    patched = patch_kernel(fetch_base(), load_variants().get(variant))
    file = tmp_path / "kernel_file.py"
    file.write_text(patched.text)
    cache = tmp_path / "cache"
    found = prebuild(patched.text, str(patched.kernel), file, major * 10 + minor, Geometry(16, 1))
    seed(found, found.__getitem__, cache)
    before = {p.name for p in cache.iterdir()}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(file)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(json.loads(done.stdout.splitlines()[-1])) == 15
    new = {p.name for p in cache.iterdir()} - before
    # Triton also keeps its compiled launcher and driver helpers there: what counts is kernels.
    kernels = [n for n in new if list((cache / n).glob("*.cubin"))]
    assert kernels == []
