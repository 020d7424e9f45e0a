"""Command lines of SGLang's servers as local processes: one server for all, or prefill and decode.

Every flag exists under this name in 0.5.17 and in 0.5.23; tests hold them against both wheels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from app.engine import Ports
from app.engine.sglang.served import Served

Role = Literal["single", "prefill", "decode"]


def server_arguments(role: Role, served: Served, model: Path, ports: Ports) -> tuple[str, ...]:
    """The arguments after the program's name. model: folder that holds config.json."""
    port, gpu = (ports.prefill, served.prefill_gpu) if role == "prefill" else (ports.decode, served.decode_gpu)
    argv = ["--model-path", str(model), "--served-model-name", served.served_name]
    # Only the lab's own model has neither weights nor code.
    argv += ["--load-format", "dummy"] if served.dummy else ["--trust-remote-code"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--tp-size", str(served.tp), "--base-gpu-id", str(gpu)]
    argv += ["--context-length", str(served.context_length), "--chunked-prefill-size", str(served.chunked_prefill)]
    argv += _memory(served)
    # What is left open here SGLang chooses by what happens to be installed.
    argv += ["--grammar-backend", "none", "--sampling-backend", "pytorch", "--disable-shared-experts-fusion"]
    argv += ["--random-seed", str(served.seed), "--enable-metrics"]
    argv += _graphs(role, served) + _disaggregation(role, served, ports)
    return (*argv, *served.more_arguments())


def _memory(served: Served) -> list[str]:
    argv = ["--mem-fraction-static", f"{served.mem_fraction:g}"] if served.mem_fraction else []
    # Two servers that start on one card each take a share of what the other has left: only a count is stable.
    return argv + (["--max-total-tokens", str(served.max_total_tokens)] if served.max_total_tokens else [])


def _graphs(role: Role, served: Served) -> list[str]:
    argv = ["--max-running-requests", str(served.max_running)]
    if role == "prefill":
        return [*argv, "--disable-cuda-graph"]
    return [*argv, "--cuda-graph-bs-decode", *map(str, served.graph_batches)]


def _disaggregation(role: Role, served: Served, ports: Ports) -> list[str]:
    if role == "single":
        return []
    argv = ["--disaggregation-mode", role, "--disaggregation-transfer-backend", served.transfer]
    return [*argv, "--disaggregation-bootstrap-port", str(ports.bootstrap)]
