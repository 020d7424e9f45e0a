"""A simulated prefill and decode behind the real router, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.stack.router import router_command
from tests.app.engine.running import Running, engine_command, free_ports, running

SERVICES = ("prefill", "decode", "router", "bootstrap", "prometheus")


@dataclass(frozen=True)
class Stack:
    """The three services and the ports they were given."""

    prefill: Running
    decode: Running
    router: Running
    ports: dict[str, int]


def role_command(role: str, ports: dict[str, int], kernel: Path, options: Sequence[str]) -> list[str]:
    """Command line of one role; a calibration.yaml beside the kernel file is used when there is one."""
    command = ["--role", role, "--port", str(ports[role]), "--bootstrap-port", str(ports["bootstrap"])]
    calibration = kernel.with_name("calibration.yaml")
    own = ["--calibration", str(calibration)] if calibration.exists() else []
    return engine_command(*command, "--kernel-file", str(kernel), *own, *options)


@contextlib.contextmanager
def stack(kernel: Path, prefill_options: Sequence[str], decode_options: Sequence[str]) -> Iterator[Stack]:
    """Starts the three and waits until the router has both workers."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    urls = {role: [f"http://127.0.0.1:{ports[role]}"] for role in ("prefill", "decode")}
    router = router_command(
        urls["prefill"],
        urls["decode"],
        ports["bootstrap"],
        port=ports["router"],
        prometheus_port=ports["prometheus"],
    )
    with (
        running(role_command("prefill", ports, kernel, prefill_options), ports["prefill"]) as prefill,
        running(role_command("decode", ports, kernel, decode_options), ports["decode"]) as decode,
        running(router.argv, ports["router"], ready="/readiness", env=router.env) as routed,
    ):
        yield Stack(prefill, decode, routed, ports)
