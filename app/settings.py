"""How the containers are run: one settings object from .env and environment, shared by compose and manifests.

Precedence: process environment, then the .env file, then the defaults below, which .env.example and the compose files
repeat; a test holds the three equal.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from app.errors import UsageError
from app.small_file import UnreadableError, read_small_text

# NCCL reads these itself in every process of a role; an empty one is to NCCL as if it were not set.
NCCL_KEYS = (
    "nccl_p2p_level",
    "nccl_p2p_disable",
    "nccl_ib_disable",
    "nccl_socket_ifname",
    "nccl_nvls_enable",
    "nccl_debug",
)
LIMIT_BYTES = 64 * 1024
BACKENDS = ("nixl", "mooncake", "mooncake_tcp")
RELEASES = ("0.5.17", "0.5.23")
# What no host needs more of; a slip of the pen there would ask for memory or time without end.
RANGES: Mapping[str, tuple[float, float]] = {
    "cuda_arch": (50, 999),
    **dict.fromkeys(("prefill_tp", "decode_tp"), (1, 1024)),
    **dict.fromkeys(("prefill_first_gpu", "decode_first_gpu"), (0, 1023)),
    **dict.fromkeys(("prefill_nodes", "decode_nodes"), (1, 1024)),
    "node_rank": (0, 1023),
    "max_running_requests": (1, 1_000_000),
    "start_timeout_s": (1, 7 * 86400),
    "health_interval_s": (1, 3600),
    "sim_time_scale": (0.001, 100_000),
    "sim_seed": (0, 2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """Every setting of .env.example, lower-case; an empty text means 'leave it to the program'.

    Ports are those inside the private network, but for router_publish and loadtest_publish, which are the host's.
    """

    variant: str = "pinned"
    prefill_variant: str = "flashinfer"
    decode_selector: str = "triton"
    prefill_selector: str = "flashinfer"
    image_repository: str = "decode-ab"
    decode_image: str = ""
    prefill_image: str = ""
    kernel_digest: str = "any"
    sglang_image: str = (
        "lmsysorg/sglang:v0.5.17@sha256:16aba8925507e631e1dc1e23d95d026533602591775f6a8db68b74ee99746155"
    )
    python_image: str = (
        "python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b"
    )
    sglang_release: str = "0.5.17"
    cuda_arch: int = 120
    model_path: str = "/models/DeepSeek-V4-Flash"
    served_model_name: str = "deepseek-v4-flash"
    prefill_tp: int = 4
    decode_tp: int = 4
    prefill_first_gpu: int = 0
    decode_first_gpu: int = 4
    prefill_port: int = 30000
    decode_port: int = 30001
    bootstrap_port: int = 8998
    router_port: int = 8000
    router_publish: int = 8000
    loadtest_publish: int = 8089
    prefill_urls: str = "http://prefill:30000"
    decode_urls: str = "http://decode:30001"
    transfer_backend: str = "nixl"
    ib_device: str = ""
    host_ip: str = ""
    max_running_requests: int = 128
    mem_fraction_static: str = ""
    prefill_extra_args: str = ""
    decode_extra_args: str = ""
    prefill_nodes: int = 1
    decode_nodes: int = 1
    node_rank: int = 0
    dist_init_addr: str = ""
    nccl_p2p_level: str = ""
    nccl_p2p_disable: str = ""
    nccl_ib_disable: str = ""
    nccl_socket_ifname: str = ""
    nccl_nvls_enable: str = ""
    nccl_debug: str = ""
    start_timeout_s: int = 3600
    health_interval_s: int = 10
    router_metrics_host: str = "127.0.0.1"
    shm_size: str = "32gb"
    sim_time_scale: float = 1.0
    sim_seed: int = 1
    sim_start_seed: str = "0"
    campaign: str = ""

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            if isinstance(value, str) and not value.isprintable():
                raise UsageError(f"{key.upper()} {value!r} holds a character that cannot be printed")
        self._check_ranges()
        self._check_choices()
        self._check_ports()
        for key in ("prefill_extra_args", "decode_extra_args"):
            try:
                shlex.split(getattr(self, key))
            except ValueError as e:
                raise UsageError(f"{key.upper()} {getattr(self, key)!r}: {e}") from e

    def _check_ranges(self) -> None:
        for key, (least, most) in RANGES.items():
            # Written so that "not a number" fails too.
            if not least <= getattr(self, key) <= most:
                raise UsageError(f"{key.upper()} {getattr(self, key)} is not within {least:g} to {most:g}")

    def _check_choices(self) -> None:
        for key, known in (("transfer_backend", BACKENDS), ("sglang_release", RELEASES)):
            if getattr(self, key) not in known:
                raise UsageError.unknown(key.upper(), str(getattr(self, key)), known)
        if re.search(r"//(localhost|127\.|\[::1\])", self.prefill_urls):
            raise UsageError(f"PREFILL_URLS {self.prefill_urls!r}: decode is sent that host and would ask itself")
        if self.ib_device and self.transfer_backend != "mooncake":
            raise UsageError(
                f"IB_DEVICE {self.ib_device!r} needs TRANSFER_BACKEND=mooncake, not {self.transfer_backend}"
            )

    def _check_ports(self) -> None:
        for key in (f.name for f in fields(self) if f.name.endswith(("_port", "_publish"))):
            if not 1 <= getattr(self, key) <= 65535:
                raise UsageError(f"{key.upper()} {getattr(self, key)} is no port (1 to 65535)")
        if self.prefill_port == self.bootstrap_port:
            raise UsageError(f"PREFILL_PORT and BOOTSTRAP_PORT are both {self.prefill_port}; choose two")

    def check_placement(self) -> Deployment:
        """The settings themselves; UsageError when roles share a GPU. A container knows one role's settings only."""
        shared = sorted(set(self.gpus("prefill")) & set(self.gpus("decode")))
        if shared and not self.host_ip:
            raise UsageError(
                f"prefill and decode share GPU {', '.join(map(str, shared))}; move DECODE_FIRST_GPU or lower a TP size"
            )
        return self

    def gpus(self, role: str) -> range:
        """Indices of the GPUs that a role uses on its host."""
        first, tp = getattr(self, f"{role}_first_gpu"), getattr(self, f"{role}_tp")
        return range(first, first + max(1, tp // getattr(self, f"{role}_nodes")))

    def environment(self) -> dict[str, str]:
        """The settings as environment variables, for compose."""
        return {key.upper(): _text(value) for key, value in asdict(self).items()}


def read_deployment(file: Path | None, environ: Mapping[str, str]) -> Deployment:
    """Settings from the .env file (None or missing: none) under the environment; UsageError names key and line."""
    values = _read_file(file) if file is not None and file.exists() else {}
    types = {f.name: str(f.type) for f in fields(Deployment)}
    values |= {key: environ[key.upper()] for key in types if key.upper() in environ}
    return Deployment(**{key: _typed(key, value, types[key]) for key, value in values.items()})


def settings_here(environ: Mapping[str, str], file: Path = Path(".env")) -> Deployment:
    """The settings that the commands use: environment over .env over defaults."""
    return read_deployment(file, environ).check_placement()


def _read_file(file: Path) -> dict[str, str]:
    known = [f.name.upper() for f in fields(Deployment)]
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(_text_of(file).split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{file}:{number}: {text!r} is no KEY=value")
        if key not in known:
            raise UsageError(f"{file}:{number}: unknown setting {key!r}; .env.example lists all")
        if key in lines:
            raise UsageError(f"{file}:{number}: {key} was given on line {lines[key]} already; keep one")
        lines[key] = number
        values[key.lower()] = value.strip().strip("'\"")
    return values


def _text_of(file: Path) -> str:
    try:
        return read_small_text(file, LIMIT_BYTES)
    except UnreadableError as e:
        raise UsageError(f"{file} {e}") from e


def _typed(key: str, value: str, kind: str) -> Any:
    if kind == "str":
        return value
    try:
        return int(value) if kind == "int" else float(value)
    except ValueError as e:
        raise UsageError(f"{key.upper()} {value!r} is not a{'n integer' if kind == 'int' else ' number'}") from e


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
