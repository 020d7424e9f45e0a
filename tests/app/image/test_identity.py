"""identity.json and the labels made from it."""

from __future__ import annotations

import json

import pytest

from app.errors import ProofError
from app.image.identity import Identity, label_differences, parse_identity, read_identity


@pytest.fixture
def identity() -> Identity:
    common = {"kernel": "k", "kernel_file": "/f", "kernel_sha256": "a" * 64, "base_sha256": "b" * 64}
    return Identity("v2", "pinned", "sim", "triton", **common, sglang_version="0.5.17", triton_version=None,
                    cuda_arch=120, configs=("(16,4,3)",), baked={"K/x": "c" * 64})  # fmt: skip


def test_identity_survives_its_file(identity: Identity) -> None:
    assert parse_identity(identity.dump(), "here") == identity


def test_equal_identities_give_equal_bytes(identity: Identity) -> None:
    assert identity.dump() == parse_identity(identity.dump(), "here").dump()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "is no identity"),
        (b"{}", "has schema None"),
        (b'{"schema": 1}', "is no identity"),
        (b'{"schema": 2}', "schema 2"),
    ],
)
def test_foreign_file_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ProofError, match=said):
        parse_identity(data, "here")


def test_cache_files_without_their_hashes_are_refused(identity: Identity) -> None:
    with pytest.raises(ProofError, match=r"is no identity of an image \(baked is \[\]\)"):
        parse_identity(json.dumps(json.loads(identity.dump()) | {"baked": []}).encode(), "here")


def test_image_without_identity_is_refused(tmp_path: object) -> None:
    from pathlib import Path

    with pytest.raises(ProofError, match="was not built by the lab"):
        read_identity(Path(str(tmp_path)) / "identity.json")


def test_labels_of_a_plain_build_are_no_contradiction(identity: Identity) -> None:
    assert label_differences({"io.decode-ab.variant": "v2", "maintainer": "x"}, identity) == []


def test_contradicting_label_is_named(identity: Identity) -> None:
    assert label_differences({"io.decode-ab.variant": "v1"}, identity) == [
        "label io.decode-ab.variant is 'v1', identity says 'v2'"
    ]


def test_simulated_image_says_so_in_its_title(identity: Identity) -> None:
    assert identity.labels()["org.opencontainers.image.title"].startswith("SIMULATED")
