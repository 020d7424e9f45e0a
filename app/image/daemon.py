"""The Docker daemon: reached through its SDK, with its many ways to fail told as one line each."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from app.errors import BuildError, GateError, LabError, NotReadyError, UsageError

if TYPE_CHECKING:
    from docker import DockerClient

API_TIMEOUT_S = 120
# Told by the daemon or a registry, in the order in which they are looked for.
FAULTS: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "the daemon's disk is full; free some space (docker system df, docker image prune)"),
    (
        r"no matching manifest|does not match the (?:specified|expected) platform",
        "the base image has no {platform} build",
    ),
    (r"exec format error", "the base image is for another platform than the daemon's {platform}"),
    (
        r"unauthorized|authentication required|pull access denied|denied: ",
        "the registry refuses; docker login, or check the name",
    ),
    (r"toomanyrequests|rate limit", "the registry's rate limit is reached; docker login, or wait"),
    (
        r"manifest unknown|manifest for .* not found|not found: manifest",
        "the registry has no such image; check its digest",
    ),
    (
        r"no such host|Temporary failure in name|server misbehaving",
        "the registry's name cannot be resolved; is this host offline?",
    ),
    (
        r"dial tcp|i/o timeout|TLS handshake timeout|Client\.Timeout|connection refused",
        "the registry cannot be reached; is this host offline?",
    ),
)
# Exit codes of `python -m app.container` inside a build step.
STEP_CODES: dict[int, type[LabError]] = {2: UsageError, 3: GateError}
# What a daemon that was told to stop says of the steps it drops.
_GOING = re.compile(
    r"libnetwork|shutting down|ttrpc: closed|client connection is closing|containerd\.sock|context canceled"
)
_STEP = re.compile(r"returned a non-zero code: (\d+)")


def connect() -> DockerClient:
    """A client of the daemon that DOCKER_HOST names; NotReadyError when none answers."""
    import requests
    from docker.errors import DockerException

    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        client = _client(where)
        client.ping()
    except (DockerException, requests.RequestException) as e:
        raise NotReadyError(f"no Docker daemon answers at {where}; start it, or set DOCKER_HOST ({_cause(e)})") from e
    return client


@lru_cache(maxsize=1)
def _client(_where: str) -> DockerClient:
    # One for all, since each holds its connections open; it outlives a restart of the daemon.
    import docker

    return docker.from_env(timeout=API_TIMEOUT_S)


@contextlib.contextmanager
def told(doing: str, platform: str = "") -> Iterator[None]:
    """Turns the SDK's exceptions into the lab's own: a daemon that went away, or what it refused to do."""
    import requests
    import urllib3
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError as e:
        raise BuildError(f"{doing}: {explained(str(e.explanation or e), platform)}") from e
    except (requests.RequestException, urllib3.exceptions.HTTPError, DockerException) as e:
        raise NotReadyError(f"{doing}: the Docker daemon went away; start it and run the same command again") from e


def explained(text: str, platform: str) -> str:
    """What a daemon's message means and how to mend it, with the message itself."""
    for pattern, meaning in FAULTS:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{meaning.format(platform=platform)} ({_short(text)})"
    return _short(text)


def step_fault(text: str, last_lines: list[str], platform: str) -> LabError:
    """The error behind a failed build step: what the lab's own step said, else what the daemon says."""
    if _GOING.search(text):
        return NotReadyError(
            f"the Docker daemon is going down ({_short(text)}); start it and run the same command again"
        )
    code = _STEP.search(text)
    said = next(
        (line.removeprefix("decode-ab: ") for line in reversed(last_lines) if line.startswith("decode-ab: ")), ""
    )
    if code and said:
        return STEP_CODES.get(int(code.group(1)), BuildError)(said)
    context = " | ".join(last_lines[-2:]) if code else ""
    return BuildError(explained(" ".join(filter(None, [text, context])), platform))


def _cause(fault: BaseException) -> str:
    """The innermost fault in the system's words; what the SDK wraps around it prints as Python."""
    while inner := fault.__cause__ or fault.__context__:
        fault = inner
    return _short(getattr(fault, "strerror", None) or fault)


def _short(e: object) -> str:
    return " ".join(str(e).split())[:300]
