"""A machine to examine: canned answers of nvidia-smi, docker and lspci, and a root folder of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.command import NOT_FOUND, Ran
from app.doctor.host import GIB, Host
from app.settings import Deployment

QUERY = "nvidia-smi --query-gpu=index,name"
CLOCKS = "nvidia-smi --query-gpu=index,clocks.sm"
INFO = "docker info"
PRO_6000 = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
# What `docker info` of a client without a daemon prints, but for the fields left out here.
DOWN = Ran(
    1,
    '{"ID":"","ServerVersion":"","Runtimes":null,"DockerRootDir":"","ClientInfo":{"Version":"28.2.2"}}\n',
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
)


def machine(
    tmp_path: Path,
    answers: Mapping[str, Ran | str] | None = None,
    engine: str = "sglang",
    free_gib: float = 500.0,
    **settings: Any,
) -> Host:
    """A host whose commands answer by the beginning of their command line; any other command is not installed."""
    known = {begin: Ran(0, ran) if isinstance(ran, str) else ran for begin, ran in (answers or {}).items()}

    def run(argv: Sequence[str]) -> Ran:
        asked = " ".join(argv)
        return next((ran for begin, ran in known.items() if asked.startswith(begin)), Ran(NOT_FOUND, err="not found"))

    def disk(_: Path) -> tuple[int, int]:
        return 1000 * GIB, int(free_gib * GIB)

    return Host(
        engine,
        "docker" if engine == "sglang" else "local",
        Deployment(**settings),
        run,
        cache=tmp_path / "cache",
        runs=tmp_path / "runs",
        root=tmp_path,
        disk=disk,
    )


def gpus(
    count: int,
    name: str = PRO_6000,
    capability: str = "12.0",
    driver: str = "580.95.05",
    used_mib: int = 4,
    persistence: str = "Enabled",
    mib: str = "97887 MiB",
) -> str:
    """Answer of nvidia-smi to the query of cards."""
    rest = f"{name}, {driver}, {capability}, {mib}, {used_mib} MiB, {persistence}"
    return "".join(f"{index}, {rest}\n" for index in range(count))


def engine_info(**changes: Any) -> str:
    """Answer of `docker info` with a daemon."""
    info = {"ServerVersion": "28.2.2", "DockerRootDir": "/var/lib/docker", "Runtimes": {"runc": {}, "nvidia": {}}}
    return json.dumps(info | changes)


def put(root: Path, path: str, text: str) -> None:
    """Writes a system file under the machine's root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
