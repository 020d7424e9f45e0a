"""A variant's kernel once it is put in place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlacedKernel:
    """A variant's kernel, ready to run: the patched file on disk with its hashes, and the selector that reaches it.

    kernel names the autotuned function in the file, None for a variant that changes the selector alone; image is the
    tag that holds it, where a runtime uses images.
    """

    variant: str
    selector: str
    path: Path
    sha256: str
    base_sha256: str
    kernel: str | None
    image: str | None = None
