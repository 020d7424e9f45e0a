"""The servers' and router's side of a start: counters once a second and at window edges, and the flushed cache."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loadtest.client.key import authorization
from loadtest.order import StartOrder

# Only these are kept: the whole page is some 100 KB on a real server.
METRICS = (
    "num_running_reqs",
    "num_queue_reqs",
    "token_usage",
    "gen_throughput",
    "cache_hit_rate",
    "generation_tokens_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "realtime_tokens_total",
    "num_requests_total",
    "num_aborted_requests_total",
    "num_retracted_reqs",
    "num_retracted_requests_total",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
    "num_prefill_prealloc_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_transfer_failed_reqs_total",
)
# Histograms, of which sum and count are kept: what the KV of one request took from prefill to decode, by either side.
TRANSFER = ("latency_ms", "total_mb", "bootstrap_ms", "alloc_ms")
TRANSFER_METRICS = tuple(f"kv_transfer_{name}_{part}" for name in TRANSFER for part in ("sum", "count"))
# Beside them: how many ranks they are summed over, by their labels. SGLang's schedulers each count their own part of a
# request, those of a tensor-parallel group too, and none is exported before its first transfer.
TRANSFER_RANKS = "kv_transfer_ranks"
# The router's own (sglang-router 0.3.2); a status code becomes part of the name.
ROUTER_METRICS = (
    "smg_http_requests_total",
    "smg_http_responses_total",
    "smg_http_connections_active",
    "smg_worker_retries_total",
    "smg_worker_retries_exhausted_total",
)
_NAMES = "|".join([*(f"sglang:{name}" for name in (*METRICS, *TRANSFER_METRICS)), *ROUTER_METRICS])
_LINE = re.compile(rb"^(" + _NAMES.encode() + rb")(\{[^}\n]*\})?[ \t]+([-+0-9.eE]+|NaN)[ \t]*(?:\d+)?$", re.MULTILINE)
_PART = re.compile(rb'[{,](?:mode|status_code)="(\w+)"')
_RANK = re.compile(rb'[{,]((?:tp|pp|dp)_rank="\d+")')
_SOURCE = re.compile(rb'[{,]cache_source="(\w+)"')
TIMEOUT_S = 5.0
LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one server. at_ns: middle of the exchange; took_ns: its length. values: summed over labels."""

    role: str
    at_ns: int
    took_ns: int
    values: dict[str, float]
    error: str = ""


def read_metrics(text: bytes) -> dict[str, float]:
    """The kept metrics of a Prometheus page, summed over labels; a `mode` or `status_code` becomes part of the name.

    TRANSFER_RANKS stands among them where transfers carry labels of ranks.
    """
    values: dict[str, float] = {}
    ranks: set[frozenset[bytes]] = set()
    for name, labels, value in _LINE.findall(text):
        source, part = _SOURCE.search(labels), _PART.search(labels)
        if source and source[1] != b"total":
            continue  # the parts are already in cache_source="total"
        key = name.decode().removeprefix("sglang:") + (f":{part[1].decode()}" if part else "")
        with contextlib.suppress(ValueError):  # such as 1.2.3: another page's business
            values[key] = values.get(key, 0.0) + float(value)
        if key in TRANSFER_METRICS and (rank := frozenset(_RANK.findall(labels))):
            ranks.add(rank)
    return values | ({TRANSFER_RANKS: float(len(ranks))} if ranks else {})


class Server:
    """One server's HTTP side, on one kept connection."""

    def __init__(self, role: str, url: str) -> None:
        self.role, self.url = role, url
        self._connection: http.client.HTTPConnection | None = None
        # A window's edge and the sampler may ask at the same moment.
        self._turn = threading.Lock()

    def sample(self) -> Sample:
        """Reads the counters; a server that does not answer gives a sample with an error."""
        start = time.monotonic_ns()
        try:
            status, text = self._request("GET", "/metrics")
            error = "" if status == 200 else f"HTTP {status} from /metrics"
        except (OSError, http.client.HTTPException) as e:
            text, error = b"", f"{type(e).__name__}: {e}"
        end = time.monotonic_ns()
        return Sample(self.role, (start + end) // 2, end - start, read_metrics(text), error)

    def unanswered(self) -> str:
        """Why the server gives no answer; empty where it gives one, whichever it is."""
        try:
            self._request("GET", "/v1/models")
        except (OSError, http.client.HTTPException) as e:
            return f"{type(e).__name__}: {e}"
        return ""

    def identity(self) -> dict[str, Any]:
        """What the server says it runs (`decode_ab` of /server_info); empty when it does not say."""
        try:
            status, text = self._request("GET", "/server_info")
            found = json.loads(text).get("decode_ab") if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def flush(self, patience_s: float, sleep: Callable[[float], None] = time.sleep) -> dict[str, Any]:
        """Empties the prefix cache, asking again while the server is busy; the record says what it answered."""
        deadline = time.monotonic() + patience_s
        attempts = 0
        while True:
            attempts += 1
            try:
                status, _ = self._request("POST", "/flush_cache")
                error = ""
            except (OSError, http.client.HTTPException) as e:
                status, error = 0, f"{type(e).__name__}: {e}"
            if status == 200 or time.monotonic() >= deadline:
                record = {"role": self.role, "status": status, "attempts": attempts, "error": error}
                return record | {"at_ns": time.monotonic_ns()}
            sleep(0.1)

    def close(self) -> None:
        """Closes the kept connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, method: str, path: str) -> tuple[int, bytes]:
        with self._turn:
            return self._exchange(method, path)

    def _exchange(self, method: str, path: str) -> tuple[int, bytes]:
        if self._connection is None:
            parts = urlsplit(self.url)
            self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=TIMEOUT_S)
        try:
            self._connection.request(method, path, headers=authorization(os.environ))
            response = self._connection.getresponse()
            body = response.read(LIMIT_BYTES)
            if not response.isclosed():
                raise http.client.HTTPException(f"{path} is longer than {LIMIT_BYTES // 2**20} MiB")
            return response.status, body
        except (OSError, http.client.HTTPException):
            self.close()
            raise


def servers_of(order: StartOrder) -> list[Server]:
    """The servers an order names, which have a cache to flush and counters to read."""
    urls = {"decode": order.decode_url, "prefill": order.prefill_url}
    return [Server(role, url) for role, url in urls.items() if url]


def router_of(order: StartOrder) -> list[Server]:
    """The router's metrics page, where the order names one; it has counters only."""
    return [Server("router", order.router_metrics_url)] if order.router_metrics_url else []


def sample_json(sample: Sample) -> dict[str, Any]:
    """A sample of load.json."""
    data: dict[str, Any] = {"role": sample.role, "at_ns": sample.at_ns, "took_ns": sample.took_ns}
    return data | {"values": sample.values} | ({"error": sample.error} if sample.error else {})


def sample_from_json(data: dict[str, Any]) -> Sample:
    """The sample a load.json holds."""
    return Sample(data["role"], data["at_ns"], data["took_ns"], data["values"], data.get("error", ""))
