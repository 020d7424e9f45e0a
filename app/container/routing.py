"""The router's role: one or several workers of each kind, from the same settings as the servers."""

from __future__ import annotations

from collections.abc import Mapping

from app.engine import Command
from app.settings import read_deployment
from app.stack.router import router_command

PROMETHEUS_PORT = 29000


def router(environ: Mapping[str, str]) -> Command:
    """The router's command with its whole environment."""
    settings = read_deployment(None, environ)
    command = router_command(
        settings.prefill_urls.split(","),
        settings.decode_urls.split(","),
        settings.bootstrap_port,
        host="0.0.0.0",
        port=settings.router_port,
        prometheus_port=PROMETHEUS_PORT,
        health_interval_s=settings.health_interval_s,
        startup_timeout_s=settings.start_timeout_s,
    )
    # The last one given counts.
    argv = (*command.argv, "--prometheus-host", settings.router_metrics_host)
    return Command(argv, {**environ, **command.env})
