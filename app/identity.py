"""What an image says it is: identity.json, written into the kernel layer where a running container can read it.

A label cannot hold what a build step computed and a container cannot read its own labels, so this file is the source
and the labels are stamped from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.errors import ProofError

SCHEMA = 1
IDENTITY = Path("/opt/decode-ab/identity.json")
# Beside the identity and read-only: Triton's compile results for the variant, by cache key.
BAKED = Path("/opt/decode-ab/triton")
LABEL = "io.decode-ab"


@dataclass(frozen=True, slots=True)
class Identity:
    """One image's variant. kernel_file: where the running service imports the kernel from.

    kernel: the autotuned function in it. triton_version is None in simulated images, which hold no Triton.
    baked: SHA-256 of each prebuilt cache file by its path under BAKED.
    """

    variant: str
    control: str | None
    engine: str
    selector: str
    kernel: str
    kernel_file: str
    kernel_sha256: str
    base_sha256: str
    sglang_version: str
    triton_version: str | None
    cuda_arch: int
    configs: tuple[str, ...]
    baked: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Short name of the kernel's content, for tags and cache folders."""
        return self.kernel_sha256[:12]

    @property
    def simulated(self) -> bool:
        return self.engine == "sim"

    def to_json(self) -> dict[str, Any]:
        """Plain data of identity.json."""
        return {"schema": SCHEMA, **asdict(self), "configs": list(self.configs), "baked": dict(self.baked)}

    def dump(self) -> bytes:
        """The file's bytes: equal identities give equal bytes."""
        return (json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n").encode()

    def labels(self) -> dict[str, str]:
        """The OCI labels that repeat this identity outside the image."""
        own = {
            "variant": self.variant,
            "control": self.control or "",
            "engine": self.engine,
            "selector": self.selector,
            "kernel.sha256": self.kernel_sha256,
            "kernel.base.sha256": self.base_sha256,
            "sglang.version": self.sglang_version,
            "triton.version": self.triton_version or "",
            "cuda.arch": str(self.cuda_arch),
        }
        simulated = "SIMULATED " if self.simulated else ""
        return {f"{LABEL}.{key}": value for key, value in own.items()} | {
            "org.opencontainers.image.title": f"{simulated}decode-ab {self.variant}",
            "org.opencontainers.image.version": self.sglang_version,
        }


def parse_identity(data: bytes, place: str) -> Identity:
    """The identity in a file's bytes; ProofError when it is none of this version's."""
    try:
        fields = dict(json.loads(data))
        schema = fields.pop("schema", None)
        if schema != SCHEMA:
            raise ProofError(f"{place} has schema {schema!r}, this lab reads {SCHEMA}; build the image again")
        return Identity(**fields | {"configs": tuple(fields["configs"])})
    except (ValueError, TypeError, KeyError) as e:
        raise ProofError(f"{place} is no identity of an image ({e}); build the image again") from e


def read_identity(path: Path = IDENTITY) -> Identity:
    """The identity of the image this process runs in."""
    try:
        return parse_identity(path.read_bytes(), str(path))
    except OSError as e:
        raise ProofError(f"{path} cannot be read ({e.strerror}); this image was not built by the lab") from e


def label_differences(labels: Mapping[str, str], identity: Identity) -> list[str]:
    """Where an image's labels contradict its identity; only labels that the lab stamped are compared."""
    wanted = identity.labels()
    stamped = {k: v for k, v in labels.items() if k in wanted}
    return [f"label {k} is {v!r}, identity says {wanted[k]!r}" for k, v in sorted(stamped.items()) if v != wanted[k]]
