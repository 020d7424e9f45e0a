"""What servers, containers and caches say of themselves: proofs, canary answers, metrics, Triton's cache metadata."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answer import LIMIT_ANSWER_BYTES
from app.container.caches import prepare_caches
from app.container.evidence import cache_entries
from app.engine import Endpoints
from app.engine.probe import generated_tokens, send_canary
from app.engine.proof import check_proof, read_proof
from app.errors import NotReadyError, ProofError
from app.image.identity import Identity, parse_identity
from tests.app.campaign.test_blocks import KERNELS
from tests.fuzz.trying import damaged, refusal, torn, tries

INFO = {"decode_ab": {"variant": "v1", "selector": "triton", "kernel_sha256": "ab", "config": "(16,8,2)",
                      "survivors": ["(16,8,2)"], "simulated": True, "model": "m"}}  # fmt: skip
ANSWER = {"model": "m", "choices": [{"text": " words"}], "usage": {"completion_tokens": 4}}
METRICS = b'# HELP x\nsglang:generation_tokens_total{model="m"} 12.0\nsglang:generation_tokens_total 3\n'
IDENTITY = Identity(
    "v1", "pinned", "sglang", "triton", "k", "/x/k.py", "a" * 64, "b" * 64, "0.5.17", "3.6", 120, ("c",)
)
ENTRY = {"num_warps": 8, "num_stages": 2, "shared": 4096, "hash": "ab", "target": {"arch": 120}}
GROUP = {"child_paths": {"k.json": "k.json", "k.cubin": "k.cubin"}}


class Liar:
    """A server that answers everything with the bytes it was given."""

    def __init__(self) -> None:
        self.body, self.status = b"", 200
        liar = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(liar.status)
                self.end_headers()
                self.wfile.write(liar.body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints(self.url, self.url, self.url, "m")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    made = Liar()
    yield made
    made.close()


@tries(120)
@given(value=damaged(INFO))
def test_any_description_of_a_server_is_a_proof_or_refused(liar: Liar, value: object) -> None:
    liar.body = json.dumps(value).encode()
    refusal(lambda: check_proof(read_proof(liar.endpoints), KERNELS["v1"]))


@tries(60)
@given(data=torn(json.dumps(INFO).encode()) | st.binary(max_size=50))
def test_any_bytes_as_description_are_a_proof_or_refused(liar: Liar, data: bytes) -> None:
    liar.body = data
    refusal(lambda: check_proof(read_proof(liar.endpoints), KERNELS["v1"]))


@tries(80)
@given(data=torn(METRICS) | st.binary(max_size=50))
def test_any_metrics_are_read_or_refused(liar: Liar, data: bytes) -> None:
    liar.body = data
    refusal(lambda: generated_tokens(liar.url))


@tries(60)
@given(value=damaged(ANSWER))
def test_any_answer_to_the_canary_is_refused_when_the_counter_stands_still(liar: Liar, value: object) -> None:
    liar.body = json.dumps(value).encode()
    assert refusal(lambda: send_canary(liar.endpoints, counter_s=0.0))


def test_an_answer_beyond_the_limit_is_refused_unread(liar: Liar) -> None:
    liar.body = b" " * (LIMIT_ANSWER_BYTES + 1)
    with pytest.raises(NotReadyError, match="more than 16 MiB"):
        read_proof(liar.endpoints)


def test_deep_nesting_in_a_description_is_refused(liar: Liar) -> None:
    liar.body = b"[" * 100_000
    with pytest.raises(NotReadyError, match="no JSON"):
        read_proof(liar.endpoints)


@tries(120)
@given(value=damaged(IDENTITY.to_json()))
def test_any_identity_is_taken_or_refused(value: object) -> None:
    refusal(lambda: parse_identity(json.dumps(value).encode(), "identity.json").labels())


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a/../../x", "a\0b", ""])
def test_an_identity_whose_cache_files_lead_elsewhere_is_refused(name: str) -> None:
    data = json.dumps(IDENTITY.to_json() | {"baked": {name: "c" * 64}}).encode()
    with pytest.raises(ProofError, match="leads out of the cache"):
        parse_identity(data, "identity.json")


@tries(80)
@given(data=damaged(ENTRY).map(lambda v: json.dumps(v).encode()) | torn(json.dumps(ENTRY).encode()))
def test_any_cache_metadata_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    volume = tmp_path_factory.getbasetemp() / "volume"
    folder = volume / IDENTITY.digest / "triton" / "KEY"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k.json").write_bytes(data)
    refusal(lambda: cache_entries(IDENTITY, volume))


@tries(60)
@given(data=damaged(GROUP).map(lambda v: json.dumps(v).encode()) | torn(json.dumps(GROUP).encode()))
def test_any_group_file_of_a_prebuilt_cache_is_placed_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    base = tmp_path_factory.getbasetemp()
    name = "KEY/__grp__k.json"
    (base / "baked" / "KEY").mkdir(parents=True, exist_ok=True)
    (base / "baked" / name).write_bytes(data)
    identity = parse_identity(
        json.dumps(IDENTITY.to_json() | {"baked": {name: hashlib.sha256(data).hexdigest()}}).encode(), "identity.json"
    )
    refusal(lambda: prepare_caches(identity, base / "seeded", base / "baked"))
