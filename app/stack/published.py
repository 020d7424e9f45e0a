"""Ports that a stack opens on this host: who holds one already, and the command that ends it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import NotReadyError
from app.image.daemon import connect, told
from app.stack.docker import CAMPAIGN_PROJECT, PROJECT
from app.stack.local import check_port_free

_LABEL = "com.docker.compose"


def require_ports_free(project: str, ports: Mapping[str, int]) -> None:
    """NotReadyError names whoever holds one of the ports, and the command that ends it.

    project: that is to open them; its own containers are replaced. ports: numbers by the names of their settings.
    """
    held = {name: holder for name, port in ports.items() if (holder := _holder(port, name, project))}
    if held:
        said = "; ".join(f"{name}={ports[name]} is held by {holder}" for name, holder in held.items())
        raise NotReadyError(f"{said}; or set another {next(iter(held))} in .env")


def _holder(port: int, name: str, project: str) -> str:
    containers = list(_publishing(port))
    others = [c for c in containers if (c.get("Labels") or {}).get(f"{_LABEL}.project") != project]
    if containers:
        return _told(others[0]) if others else ""
    # The ports of another host's daemon are not seen from here.
    if not os.environ.get("DOCKER_HOST", "unix:").startswith("unix:"):
        return ""
    try:
        check_port_free(port, name)
    except NotReadyError:
        return f"a program outside this Engine, which `ss -ltnp 'sport = :{port}'` names: end it"
    return ""


def _publishing(port: int) -> Iterator[Mapping[str, Any]]:
    with told(f"looking for what holds port {port}"):
        api: Any = connect().api
        yield from (c for c in api.containers() if any(p.get("PublicPort") == port for p in c.get("Ports") or ()))


def _told(container: Mapping[str, Any]) -> str:
    labels, name = container.get("Labels") or {}, container["Names"][0].removeprefix("/")
    if not (stack := labels.get(f"{_LABEL}.project")):
        return f"container {name}: end it with `docker rm --force {name}`"
    ends = "invoke down" if stack in (PROJECT, CAMPAIGN_PROJECT) else f"docker compose --project-name {stack} down"
    return f"{labels.get(f'{_LABEL}.service', name)} of the stack {stack}: end it with `{ends}`"
