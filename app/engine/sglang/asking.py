"""Words to the lab's hooks inside a running server, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.answer import post
from app.engine import Endpoints
from app.engine.sglang.plugin.decode_ab_replay import EAGER, RELEASE
from app.errors import NotReadyError
from app.records import read_json

WAIT_S = 45.0
LOOK_S = 0.05


@contextmanager
def without_graphs(endpoints: Endpoints, folder: Path) -> Iterator[None]:
    """Decode steps inside the block are launched kernel by kernel; NotReadyError when the server would not."""
    told = folder / f"{EAGER}.json"
    told.unlink(missing_ok=True)
    ask(endpoints, EAGER, folder, 1)
    try:
        outcome_in(told)
        yield
    finally:
        ask(endpoints, RELEASE, folder, 1)


def ask(endpoints: Endpoints, what: str, folder: Path, steps: int) -> None:
    """Has the hooks do it, by SGLang's own /start_profile; NotReadyError when the server refuses."""
    body = {"profile_id": what, "output_dir": str(folder), "num_steps": steps}
    answer = post(f"{endpoints.decode_url}/start_profile", body, WAIT_S)
    if answer.status != 200:
        raise NotReadyError(f"{answer.url} answered HTTP {answer.status} to {what}; the server's log says why")


def outcome_in(told: Path) -> dict[str, Any]:
    """What the hooks wrote down of it; NotReadyError when they failed or nothing came in time."""
    deadline = time.monotonic() + WAIT_S
    while not told.is_file():
        if time.monotonic() > deadline:
            raise NotReadyError(f"{told.stem}: no outcome within {WAIT_S:.0f} s; the server's log says why")
        time.sleep(LOOK_S)
    outcome = dict(read_json(told))
    if outcome["error"]:
        raise NotReadyError(f"{told.stem}: {outcome['error']}")
    return outcome
