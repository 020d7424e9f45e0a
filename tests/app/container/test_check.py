"""The image's proof of itself: every way in which file, identity and selector can disagree is a refusal."""

from __future__ import annotations

import py_compile
from dataclasses import replace
from pathlib import Path

import pytest

from app.container.check import check_image, check_selector
from app.errors import ProofError
from app.image.identity import Identity
from app.kernel.selector import SELECTOR


def test_image_that_agrees_passes(identity: Identity) -> None:
    check_image(identity)


def test_changed_kernel_file_is_refused(identity: Identity) -> None:
    Path(identity.kernel_file).write_text("x = 2\n")
    with pytest.raises(ProofError, match=r"has SHA-256 .* identity\.json says"):
        check_image(identity)


def test_kernel_at_another_path_than_the_imported_one_is_refused(identity: Identity) -> None:
    other = identity.kernel_file.replace("site", "elsewhere")
    with pytest.raises(ProofError, match=r"SGLang imports .* but the identity names"):
        check_image(replace(identity, kernel_file=other))


def test_kernel_that_does_not_compile_is_refused(identity: Identity) -> None:
    import hashlib

    text = b"def f(:\n"
    Path(identity.kernel_file).write_bytes(text)
    with pytest.raises(ProofError, match="does not compile"):
        check_image(replace(identity, kernel_sha256=hashlib.sha256(text).hexdigest()))


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.TIMESTAMP]
)
def test_bytecode_that_could_hide_the_file_is_refused(identity: Identity, mode: py_compile.PycInvalidationMode) -> None:
    py_compile.compile(identity.kernel_file, invalidation_mode=mode)
    with pytest.raises(ProofError, match="is not the bytecode of"):
        check_image(identity)


def test_bytecode_checked_by_hash_passes(identity: Identity) -> None:
    py_compile.compile(identity.kernel_file, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    check_image(identity)


def test_missing_prebuilt_file_is_refused(identity: Identity, tmp_path: Path) -> None:
    with pytest.raises(ProofError, match=r"prebuilt cache file .* is missing or changed"):
        check_image(replace(identity, baked={"KEY/k.cubin": "0" * 64}), tmp_path)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "is not set; v2 needs"),
        ({SELECTOR: "trition"}, "would silently select the slow PyTorch path"),
        ({SELECTOR: "flashinfer"}, "but variant v2 declares triton"),
        ({SELECTOR: "triton", "SGLANG_SM120_TRITON_FLASHMLA": "1"}, "no supported SGLang reads it"),
    ],
    ids=["missing", "typo", "another", "stale"],
)
def test_wrong_selector_is_refused(identity: Identity, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ProofError, match=said):
        check_selector(identity, environ)


def test_declared_selector_passes(identity: Identity) -> None:
    check_selector(identity, {SELECTOR: "triton"})
