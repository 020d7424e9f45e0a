"""Life of one engine process: build, listen, run until a signal, write the truth, leave."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

from app.engine.sim.clock import NS_PER_S, WallClock, die_with_parent
from app.engine.sim.mock import Mock
from app.engine.sim.options import Options
from app.engine.sim.protocol import Connection
from app.engine.sim.server import Backend, Server
from app.engine.sim.shapes import read_script
from app.engine.sim.truth import Truth
from app.errors import NotReadyError


async def serve(options: Options) -> None:
    """Serves until SIGTERM or SIGINT; NotReadyError when a port is taken."""
    if options.pdeathsig:
        die_with_parent()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = WallClock(options.time_scale)
    loop.add_reader(clock.fd, clock.fire)
    truth = Truth(keep=bool(options.truth) or bool(options.script))
    server = build_server(options, clock, truth)
    listener = await listen(lambda: Connection(server.handle), options.host, options.port, "--port")
    _say_hello(options)
    # Most objects live as long as the process; collections of them would show as stalls of several ms.
    gc.collect()
    gc.freeze()
    await stop.wait()
    server.stopping = True
    listener.close()
    if options.truth not in ("", "memory"):
        truth.write(Path(options.truth))


def build_server(options: Options, clock: WallClock, truth: Truth) -> Server:
    """The routes over the backend that the options ask for."""
    backend: Backend = Mock(read_script(options.script), clock, truth)
    identity = {
        "engine": "sim",
        "simulated": True,
        "variant": options.variant,
        "time_scale": options.time_scale,
        "pid": os.getpid(),
        "started_at": datetime.now(UTC).isoformat(),
    }
    return Server(
        role=options.role,
        model=options.model,
        backend=backend,
        truth=truth,
        identity=identity,
        settings={"served_model_name": options.model, "host": options.host, "port": options.port},
        max_model_len=options.context_length,
        ready_ns=time.monotonic_ns() + round(options.startup_s * NS_PER_S),
    )


async def listen(factory: type | object, host: str, port: int, flag: str) -> asyncio.Server:
    """Listens for connections; NotReadyError when the port is taken or the address is not ours."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(factory, host, port, backlog=1024)  # type: ignore[arg-type]
    except OSError as e:
        raise NotReadyError(f"cannot listen on {host}:{port} ({e.strerror or e}); choose another {flag}") from e


def _say_hello(options: Options) -> None:
    what = "clocked mock" if options.script else f"{options.role} engine"
    print(
        f"SIMULATED {what} on http://{options.host}:{options.port} time_scale {options.time_scale:g} pid {os.getpid()}",
        flush=True,
    )
