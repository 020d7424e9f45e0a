"""Command lines of SGLang's prefill and decode servers, for the pinned releases 0.5.17 and 0.5.23 alike.

Every flag here exists under this name in both releases; 0.5.17's `--cuda-graph-max-bs` and its kin do not, so the
`-decode` spelling is used.
"""

from __future__ import annotations

import shlex

from app.engine import Command
from app.settings import Deployment

# Health probes would otherwise add one-token requests to the load that is being measured.
QUIET_HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}


def server_command(role: str, settings: Deployment, model_path: str, config: str | None = None) -> Command:
    """`sglang serve` for a role ("prefill" or "decode").

    model_path: where the model lies for the server itself. config: a YAML file merged into the arguments inside the
    process, which keeps a key off the process list.
    """
    port = settings.prefill_port if role == "prefill" else settings.decode_port
    argv = ["sglang", "serve", "--model-path", model_path, "--served-model-name", settings.served_model_name]
    argv += ["--trust-remote-code", "--host", settings.host_ip or "0.0.0.0", "--port", str(port)]
    argv += [*_placement(role, settings), *_disaggregation(role, settings)]
    if role == "decode":
        most = str(settings.max_running_requests)
        argv += ["--max-running-requests", most, "--cuda-graph-max-bs-decode", most]
    if settings.mem_fraction_static:
        argv += ["--mem-fraction-static", settings.mem_fraction_static]
    argv += ["--enable-metrics", *(["--config", config] if config else [])]
    argv += shlex.split(settings.prefill_extra_args if role == "prefill" else settings.decode_extra_args)
    own_address = {"SGLANG_HOST_IP": settings.host_ip} if settings.host_ip else {}
    return Command(tuple(argv), {"HF_HUB_OFFLINE": "1", **QUIET_HEALTH, **own_address})


def _placement(role: str, settings: Deployment) -> list[str]:
    prefill = role == "prefill"
    tp, first = (
        (settings.prefill_tp, settings.prefill_first_gpu)
        if prefill
        else (settings.decode_tp, settings.decode_first_gpu)
    )
    argv = ["--tp-size", str(tp), *(["--base-gpu-id", str(first)] if first else [])]
    # Only a role that itself spans hosts: prefill and decode are separate servers and share no rendezvous.
    if (nodes := settings.prefill_nodes if prefill else settings.decode_nodes) > 1:
        argv += ["--nnodes", str(nodes), "--node-rank", str(settings.node_rank)]
        argv += ["--dist-init-addr", settings.dist_init_addr]
    return argv


def _disaggregation(role: str, settings: Deployment) -> list[str]:
    argv = ["--disaggregation-mode", role, "--disaggregation-transfer-backend", settings.transfer_backend]
    # Decode uses its own value when the router sends none, so both roles state it.
    argv += ["--disaggregation-bootstrap-port", str(settings.bootstrap_port)]
    return argv + (["--disaggregation-ib-device", settings.ib_device] if settings.ib_device else [])
