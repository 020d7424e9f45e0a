"""What stands before prefill and decode: the real SGLang router (sglang-router 0.3.2), the same for every runtime.

Its package also has a small load balancer in Python, for where the router will not answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from app.engine import Command

# Retries and the breaker are off: each retry goes to prefill and decode alike and inflates the load being measured.
FIXED = (
    "--policy", "round_robin", "--disable-retries", "--disable-circuit-breaker",
    "--request-timeout-secs", "1800", "--prometheus-host", "127.0.0.1", "--log-level", "warn",
)  # fmt: skip


# The router asks the model hub for a tokenizer whatever HF_HUB_OFFLINE says; here nothing listens.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}


@dataclass(frozen=True, slots=True)
class Balancer:
    """told: its name in manifests. ready: path of its own word that it serves. metrics: whether it counts anything."""

    told: str
    ready: str
    metrics: bool


# The router's /health says 200 with no worker at all, so only /readiness counts. The mini load balancer takes its
# workers from its command line and has no /readiness: once it answers, what is left to wait for is the workers.
BALANCERS = {
    "rust": Balancer("sglang-router 0.3.2", "/readiness", True),
    "mini": Balancer("sglang-router 0.3.2, its mini load balancer", "/health", False),
}


def router_command(
    prefill_urls: Sequence[str],
    decode_urls: Sequence[str],
    bootstrap_port: int,
    *,
    host: str = "127.0.0.1",
    port: int,
    prometheus_port: int,
    health_interval_s: int = 10,
    startup_timeout_s: int = 3600,
    python: str = sys.executable,
) -> Command:
    """One or more workers of each role; the bootstrap port is stated, since left out the router sends none."""
    argv = [python, "-m", "sglang_router.launch_router", "--pd-disaggregation"]
    for url in prefill_urls:
        argv += ["--prefill", url, str(bootstrap_port)]
    for url in decode_urls:
        argv += ["--decode", url]
    argv += ["--host", host, "--port", str(port), "--prometheus-port", str(prometheus_port)]
    # SGLang's own health answer may take 20 s by design.
    argv += ["--health-check-timeout-secs", "30", "--health-check-interval-secs", str(health_interval_s)]
    argv += ["--worker-startup-timeout-secs", str(startup_timeout_s), "--worker-startup-check-interval", "1", *FIXED]
    return Command(tuple(argv), OFFLINE)


def mini_command(
    prefill_urls: Sequence[str],
    decode_urls: Sequence[str],
    bootstrap_port: int,
    *,
    port: int,
    python: str = sys.executable,
) -> Command:
    """SGLang's mini load balancer on loopback: one Python process that takes a pair of workers at random.

    It drops a request's headers, a key among them, and answers a stream with 200 before it has asked the workers.
    """
    argv = [python, "-m", "sglang_router.launch_router", "--mini-lb", "--pd-disaggregation", "--policy", "random"]
    for url in prefill_urls:
        argv += ["--prefill", url, str(bootstrap_port)]
    for url in decode_urls:
        argv += ["--decode", url]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--request-timeout-secs", "1800"]
    return Command(tuple(argv), OFFLINE)
