"""The stand-in's server: the simulated engine's, which also answers what is asked of SGLang after a load.

STANDIN: JSON of what this variant shows. launches: events of a trace, null where the profiler cannot start; pid: of the
traced process; noise: of attention's outputs, relative; nats: added to each log probability; error: of the replay.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from app.engine.sglang.plugin.decode_ab_replay import EAGER, INPUTS, RECORD, RELEASE, REPLAY
from app.engine.sim import process
from app.engine.sim.__main__ import main
from app.engine.sim.protocol import Connection, Request
from app.engine.sim.server import Server
from tests.kernels.made_trace import write_trace

BLACKWELL = {"name": "a stand-in", "computeMajor": 12, "computeMinor": 0}
SHOWN = json.loads(os.environ.get("STANDIN", "{}"))


class Inspected(Server):
    """Answers /start_profile, /stop_profile and completions with log probabilities."""

    __slots__ = ()

    def handle(self, request: Request, connection: Connection) -> None:
        if request.path == "/start_profile":
            connection.reply(profiled(json.loads(request.body)), "Start profiling.\n")
        elif request.path == "/stop_profile":
            connection.reply(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")
        elif b'"logprobs"' in request.body:
            connection.reply(HTTPStatus.OK, {"choices": [{"text": "t1", "logprobs": likeliest()}]})
        else:
            super().handle(request, connection)


def profiled(asked: dict[str, Any]) -> HTTPStatus:
    folder, name = Path(asked["output_dir"]), asked["profile_id"]
    if name == RECORD:
        (folder / INPUTS).write_bytes(b"inputs")
        tell(folder, name, {})
    elif name == REPLAY:
        replay(folder)
    elif name == EAGER:
        tell(folder, name, {"graphs": False, "error": ""})
    elif name != RELEASE:
        if (launches := SHOWN.get("launches", [])) is None:
            return HTTPStatus.INTERNAL_SERVER_ERROR
        host = {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": SHOWN.get("pid", os.getpid()), "dur": 1}
        events = [*[host] * asked["num_steps"], *launches]
        write_trace(folder / f"{name}-TP-0.trace.json.gz", *events, device=BLACKWELL)
    return HTTPStatus.OK


def replay(folder: Path) -> None:
    rng = np.random.default_rng(1)
    first = rng.standard_normal((8, 1, 4, 512), dtype=np.float32)
    noise = rng.standard_normal(first.shape, dtype=np.float32) * np.float32(SHOWN.get("noise", 0.0))
    turns: dict[str, Any] = {f"128+0/{turn}": first + noise for turn in ("first", "again")}
    np.savez(folder / f"outputs-{os.getpid()}.npz", **turns)
    told = {"attention": "a stand-in's", "own_heads": first.shape[2]}
    tell(folder, REPLAY, {"inputs_sha256": hashlib.sha256(b"inputs").hexdigest(), **told})


def tell(folder: Path, what: str, facts: dict[str, Any]) -> None:
    partial = folder / ".told"
    partial.write_text(json.dumps({"pid": os.getpid(), "error": SHOWN.get("error", ""), **facts}))
    partial.replace(folder / f"{what}.json")


def likeliest() -> dict[str, Any]:
    nats = float(SHOWN.get("nats", 0.0))
    return {"tokens": ["t1", "t2"], "top_logprobs": [{"t1": -1.0, "t2": -2.0}, {"t2": -1.0 + nats, "t3": -2.0}]}


if __name__ == "__main__":
    vars(process)["Server"] = Inspected
    sys.exit(main())
