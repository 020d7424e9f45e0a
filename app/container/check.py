"""The image's own proof: kernel file, identity and selector agree, at build and again before every start."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import cache_from_source, source_hash
from pathlib import Path

from app.container.location import installed_file
from app.errors import ProofError
from app.image.identity import BAKED, Identity
from app.kernel.selector import SELECTOR, SELECTORS, STALE_SELECTOR

_CHECKED_HASH = 0b11


def check_image(identity: Identity, baked: Path = BAKED) -> None:
    """Raises ProofError when what lies in the image is not what its identity says."""
    path = Path(identity.kernel_file)
    relative = _inside_package(path)
    if (found := installed_file(relative)) != path:
        raise ProofError(f"SGLang imports {found}, but the identity names {path}; rebuild the image")
    data = path.read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != identity.kernel_sha256:
        raise ProofError(f"{path} has SHA-256 {digest}, identity.json says {identity.kernel_sha256}; rebuild the image")
    try:
        compile(data, str(path), "exec")
    except SyntaxError as e:
        raise ProofError(f"{path} does not compile: {e}") from e
    _check_bytecode(path, data)
    for name, wanted in sorted(identity.baked.items()):
        if not (baked / name).is_file() or hashlib.sha256((baked / name).read_bytes()).hexdigest() != wanted:
            raise ProofError(f"prebuilt cache file {baked / name} is missing or changed; rebuild the image")


def check_selector(identity: Identity, environ: Mapping[str, str]) -> None:
    """Raises ProofError unless the selector that SGLang will read is the one the variant declares."""
    if STALE_SELECTOR in environ:
        raise ProofError(f"{STALE_SELECTOR} is set, but no supported SGLang reads it; use {SELECTOR}")
    value = environ.get(SELECTOR)
    if value is None:
        raise ProofError(f"{SELECTOR} is not set; {identity.variant} needs {SELECTOR}={identity.selector}")
    if value not in SELECTORS:
        known = ", ".join(SELECTORS)
        raise ProofError(f"{SELECTOR}={value!r} would silently select the slow PyTorch path; it must be one of {known}")
    if value != identity.selector:
        raise ProofError(f"{SELECTOR}={value}, but variant {identity.variant} declares {identity.selector}")


def _inside_package(path: Path) -> str:
    parts = path.parts
    if "sglang" not in parts:
        raise ProofError(f"{path} is not a file of the sglang package")
    last = len(parts) - 1 - parts[::-1].index("sglang")
    return "/".join(parts[last:])


def _check_bytecode(path: Path, data: bytes) -> None:
    # Bytecode checked by time or not at all could run instead of the file that was just hashed.
    cached = Path(cache_from_source(str(path)))
    if not cached.is_file():
        return
    header = cached.read_bytes()[:16]
    if header[4] != _CHECKED_HASH or header[8:16] != source_hash(data):
        raise ProofError(f"{cached} is not the bytecode of {path}; rebuild the image")
