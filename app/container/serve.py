"""The entrypoint: proves the image, prepares the caches, then becomes the server that the role asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.container.caches import cache_environment, prepare_caches
from app.container.check import check_image, check_selector
from app.engine import Command
from app.engine.sglang.commands import server_command
from app.errors import NotReadyError
from app.image.identity import Identity, read_identity
from app.kernel.selector import SELECTOR
from app.settings import Deployment, read_deployment

MODEL = Path("/model")
# A key for the servers, as a YAML file of SGLang arguments; mounted from a secret, never an argument or a variable.
KEY_FILE = Path("/run/secrets/sglang.yaml")
TRANSFER_PACKAGES = {"nixl": "nixl", "mooncake": "mooncake", "mooncake_tcp": "mooncake"}


def serve(role: str, environ: Mapping[str, str]) -> Command:
    """The checked command of an engine role ("prefill" or "decode"), with its whole environment."""
    identity = read_identity()
    check_image(identity)
    check_selector(identity, environ)
    settings = read_deployment(None, environ)
    seeded = prepare_caches(identity)
    command = engine_command(role, settings, identity)
    print(_announcement(role, identity), f"cache files: {seeded}", sep="\n", file=sys.stderr, flush=True)
    env = {**environ, **cache_environment(identity), **command.env}
    if identity.selector == "flashmla":
        del env[SELECTOR]
    return Command(command.argv, env)


def engine_command(role: str, settings: Deployment, identity: Identity) -> Command:
    """The server's command line for what the image holds: SGLang, or the simulated engine."""
    if identity.simulated:
        return _simulated_command(role, settings, identity)
    check_ready(settings)
    return server_command(role, settings, str(MODEL), str(KEY_FILE) if KEY_FILE.is_file() else None)


def check_ready(settings: Deployment, model: Path = MODEL) -> None:
    """NotReadyError when the model or the transfer library is missing, which SGLang would tell minutes later."""
    from importlib.util import find_spec

    if not (model / "config.json").is_file():
        raise NotReadyError(f"{model}/config.json is missing; MODEL_PATH must name the folder of a model")
    package = TRANSFER_PACKAGES[settings.transfer_backend]
    if find_spec(package) is None:
        raise NotReadyError(
            f"TRANSFER_BACKEND={settings.transfer_backend} needs package {package}, absent from this image"
        )


def become(command: Command) -> None:
    """Replaces this process by the command, which so gets the container's signals."""
    os.execvpe(command.argv[0], list(command.argv), dict(command.env))


def _simulated_command(role: str, settings: Deployment, identity: Identity) -> Command:
    port = settings.prefill_port if role == "prefill" else settings.decode_port
    argv = [
        sys.executable,
        "-m",
        "app.engine.sim",
        "--role",
        role,
        "--host",
        settings.host_ip or "0.0.0.0",
        "--port",
        str(port),
    ]
    argv += ["--bootstrap-port", str(settings.bootstrap_port), "--model", settings.served_model_name]
    argv += ["--kernel-file", identity.kernel_file, *(["--kernel", identity.kernel] if identity.kernel else [])]
    argv += ["--selector", identity.selector, "--variant", identity.variant]
    argv += ["--max-running-requests", str(settings.max_running_requests)]
    argv += ["--time-scale", f"{settings.sim_time_scale:g}", "--seed", str(settings.sim_seed)]
    argv += ["--start-seed", settings.sim_start_seed if role == "decode" else role]
    return Command(tuple(argv))


def _announcement(role: str, identity: Identity) -> str:
    simulated = "SIMULATED " if identity.simulated else ""
    return (
        f"{simulated}{role}: variant {identity.variant}, selector {identity.selector}, kernel {identity.kernel_file} "
        f"sha256 {identity.kernel_sha256}, sm_{identity.cuda_arch}"
    )
