"""Life of one engine process: build, listen, run until a signal, write the truth, leave."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.engine.sim.backend import Engine, Parts, SingleEngine
from app.engine.sim.calibration import read_calibration
from app.engine.sim.clock import NS_PER_S, WallClock, die_with_parent
from app.engine.sim.disaggregated import DecodeEngine, PrefillEngine
from app.engine.sim.mock import Mock
from app.engine.sim.options import Options
from app.engine.sim.protocol import Connection
from app.engine.sim.server import Backend, Server
from app.engine.sim.shapes import read_script
from app.engine.sim.timing import Selection, Timing, select
from app.engine.sim.transfer import Peer
from app.engine.sim.truth import Truth
from app.errors import NotReadyError

MEMORY = "memory"


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
    truth = Truth(keep=bool(options.truth or options.script))
    server = build_server(options, clock, truth)
    listeners = await _listen(options, server)
    _say_hello(options, server.identity)
    # Most objects live as long as the process; collecting them again and again would show as stalls of several ms.
    gc.collect()
    gc.freeze()
    await stop.wait()
    server.stopping = True
    for listener in listeners:
        listener.close()
    if options.truth not in ("", MEMORY):
        truth.write(Path(options.truth))


def build_server(options: Options, clock: WallClock, truth: Truth) -> Server:
    """The routes over the backend that the options ask for; UsageError or PatchError for files that cannot be used."""
    identity = _identity(options)
    backend: Backend
    if options.script:
        backend = Mock(read_script(options.script), clock, truth)
    else:
        parts = Parts(options, read_calibration(options.calibration), clock, truth)
        backend = build_engine(parts, identity)
    return Server(
        role=options.role,
        model=options.model,
        backend=backend,
        truth=truth,
        identity=identity,
        settings=_settings(options),
        max_model_len=options.context_length,
        key=_key(options.key_file),
        ready_ns=time.monotonic_ns() + round(options.startup_s * NS_PER_S),
    )


def _key(file: Path | None) -> str:
    if file is None:
        return ""
    # The image of this engine holds no loadtest, and asks for no key.
    from loadtest.client.key import read_key

    return read_key(file)


def build_engine(parts: Parts, identity: dict[str, Any]) -> Engine:
    """The engine of the role; what it runs is added to its identity."""
    options, calibration = parts.options, parts.calibration
    identity["calibration_sha256"] = calibration.sha256
    if options.role == "prefill":
        return PrefillEngine(parts)
    draw = f"{options.seed}/{options.start_seed}"
    selection = select(calibration, options.selector, options.kernel_file, options.kernel, draw)
    identity.update(_selected(selection))
    noise = calibration.noise(options.noise)
    # Drift belongs to the host: its phase follows CLOCK_MONOTONIC, which restarts do not reset.
    origin_s = parts.clock.origin_ns / NS_PER_S * options.time_scale
    timing = Timing(calibration, selection.choice, noise, options.seed, options.start_seed, origin_s)
    return DecodeEngine(parts, timing) if options.role == "decode" else SingleEngine(parts, timing)


async def _listen(options: Options, server: Server) -> list[asyncio.Server]:
    listeners = [await _bind(lambda: Connection(server.handle), options.host, options.port, "--port")]
    engine = server.backend
    if isinstance(engine, PrefillEngine):
        listeners.append(await _bind(lambda: Peer(engine), options.host, options.bootstrap_port, "--bootstrap-port"))
    return listeners


async def _bind(factory: Callable[[], asyncio.Protocol], host: str, port: int, flag: str) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(factory, host, port, backlog=1024)
    except OSError as e:
        raise NotReadyError(f"cannot listen on {host}:{port} ({e.strerror or e}); choose another {flag}") from e


def _identity(options: Options) -> dict[str, Any]:
    return {
        "engine": "sim",
        "simulated": True,
        "role": options.role,
        "variant": options.variant,
        "selector": options.selector,
        "kernel_file": None if options.kernel_file is None else str(options.kernel_file),
        "kernel_sha256": None,
        "kernel": options.kernel,
        "config": None,
        "time_scale": options.time_scale,
        "noise": options.noise,
        "seed": options.seed,
        "start_seed": options.start_seed,
        "calibration_sha256": None,
        "pid": os.getpid(),
        "started_at": datetime.now(UTC).isoformat(),
    }


def _selected(selection: Selection) -> dict[str, Any]:
    return {
        "kernel_sha256": selection.kernel_sha256,
        "config": selection.choice,
        "configs": list(selection.configs),
        "survivors": list(selection.survivors),
    }


def _settings(options: Options) -> dict[str, Any]:
    mode = {"prefill": "prefill", "decode": "decode", "single": "null"}[options.role]
    return {
        "served_model_name": options.model,
        "host": options.host,
        "port": options.port,
        "disaggregation_mode": mode,
        "disaggregation_bootstrap_port": options.bootstrap_port,
        "max_running_requests": options.max_running_requests,
        "page_size": options.page_size,
        "context_length": options.context_length,
        "enable_metrics": True,
    }


def _say_hello(options: Options, identity: Any) -> None:
    what = "clocked mock" if options.script else f"{options.role} engine"
    runs = "" if identity["config"] is None else f", {identity['variant'] or 'no variant'} runs {identity['config']}"
    where = f"http://{options.host}:{options.port}"
    print(f"SIMULATED {what} on {where}{runs}, time_scale {options.time_scale:g}, pid {os.getpid()}", flush=True)
