"""What runs while an image is built, with no more of the lab there than the stage copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_what_bakes_an_image_needs_nothing_of_the_load_driver() -> None:
    # The stage that patches holds app and kernels alone.
    program = (
        "import sys; sys.modules['loadtest'] = None\n"
        "import app.container.bake, app.container.__main__, app.gate.gate, app.gate.prebuilt, app.kernel.patch"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
