"""A profiler's trace of the decode service, taken by SGLang itself over a few steps."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.answer import post
from app.engine import Endpoints
from app.engine.sglang.asking import without_graphs
from app.engine.sglang.kept_busy import kept_busy
from app.errors import NotReadyError

STEPS = 10
WAIT_S = 45.0
LOOK_S = 0.1
# Packed. Ten decode steps take some 100 KB; a larger trace is of something else, a kept one travels with its campaign.
LIMIT_BYTES = 16 * 1024 * 1024
KEPT_BYTES = 2 * 1024 * 1024


def profile_request(name: str, folder: Path) -> dict[str, Any]:
    """Body of /start_profile: SGLang begins at once, ends by itself, and writes FOLDER/NAME-TP-0.trace.json.gz.

    More ranks than those of TP add theirs to the name.

    Without CPU beside GPU torch's profiler would end the scheduler where CUPTI is missing.
    """
    return {
        "output_dir": str(folder),
        "profile_id": name,
        "num_steps": STEPS,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }


def take_trace(endpoints: Endpoints, prompts: Sequence[str], tokens: int, folder: Path) -> Path:
    """The trace of some decode steps with all prompts running; NotReadyError says why there is none."""
    name = f"decode-ab-{uuid.uuid4().hex[:12]}"
    with without_graphs(endpoints, folder), kept_busy(endpoints, prompts, tokens):
        answer = post(f"{endpoints.decode_url}/start_profile", profile_request(name, folder), WAIT_S)
        if answer.status != 200:
            raise NotReadyError(f"{answer.url} answered HTTP {answer.status}; the server's log says why")
        deadline = time.monotonic() + WAIT_S
        while not _written(folder, name) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        path = _written(folder, name)
        # The scheduler writes the file in one go and answers after it, whether there was anything left to stop or not.
        post(f"{endpoints.decode_url}/stop_profile", {}, WAIT_S)
    if path is None:
        # One that the stop wrote is of fewer steps than it would be read as.
        for cut in folder.glob(f"{name}*.trace.json.gz"):
            cut.unlink()
        raise NotReadyError(
            f"{STEPS} decode steps were not traced within {WAIT_S:.0f} s; the server's log says whether it decoded"
        )
    if (size := path.stat().st_size) > LIMIT_BYTES:
        path.unlink()
        raise NotReadyError(f"the profiler's trace takes {size} bytes, {LIMIT_BYTES} are read at most")
    return path


def keep(path: Path, folder: Path) -> str:
    """Moves a trace into the start's folder unless it is too large to travel; its name there, or nothing."""
    if path.stat().st_size > KEPT_BYTES:
        path.unlink()
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    return path.replace(folder / "trace.json.gz").name


def _written(folder: Path, name: str) -> Path | None:
    return next(folder.glob(f"{name}-TP-0*.trace.json.gz"), None)
