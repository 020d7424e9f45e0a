"""Ports of this host that the containers open."""

from __future__ import annotations

from collections.abc import Iterator

from app.doctor.finding import Finding, fail, ok
from app.doctor.host import Host
from app.errors import NotReadyError
from app.stack.local import check_port_free

PUBLISHED = ("ROUTER_PUBLISH", "LOADTEST_PUBLISH")
# On two hosts the servers use the host's own network.
SERVERS = ("PREFILL_PORT", "DECODE_PORT", "BOOTSTRAP_PORT")


def ports(host: Host) -> Finding:
    """Whether every port is free."""
    names = PUBLISHED + (SERVERS if host.settings.host_ip else ())
    numbers = {name: int(getattr(host.settings, name.lower())) for name in names}
    if taken := list(_taken(numbers)):
        remedy = f"invoke down, if the lab's own stack holds it; else end what does, or set another {taken[0]} in .env"
        return fail(f"in use: {', '.join(f'{name}={numbers[name]}' for name in taken)}", remedy)
    return ok(f"free: {', '.join(map(str, numbers.values()))}")


def _taken(numbers: dict[str, int]) -> Iterator[str]:
    for name, number in numbers.items():
        try:
            check_port_free(number, name)
        except NotReadyError:
            yield name
