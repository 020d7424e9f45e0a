"""What an image says it is: identity.json, written into the kernel layer where a running container can read it.

A label cannot hold what a build step computed and a container cannot read its own labels, so this file is the source
and the labels are stamped from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
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
        found = dict(json.loads(data))
        schema = found.pop("schema", None)
        if schema != SCHEMA:
            raise ProofError(f"{place} has schema {schema!r}, this lab reads {SCHEMA}; build the image again")
        identity = Identity(**found | {"configs": tuple(found["configs"])})
        _check_types(identity)
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise ProofError(f"{place} is no identity of an image ({e}); build the image again") from e
    if astray := [name for name in identity.baked if not _is_inside(name)]:
        raise ProofError(f"{place} names cache file {astray[0]!r}, which leads out of the cache; build the image again")
    return identity


def _check_types(identity: Identity) -> None:
    optional = ("control", "triton_version")
    for key in (f.name for f in fields(Identity) if f.name not in ("cuda_arch", "configs", "baked")):
        value = getattr(identity, key)
        if not isinstance(value, str) and not (value is None and key in optional):
            raise TypeError(f"{key} is {value!r}")
    if not isinstance(identity.baked, dict):
        raise TypeError(f"baked is {identity.baked!r}")
    texts = (*identity.configs, *identity.baked, *identity.baked.values())
    if not isinstance(identity.cuda_arch, int) or not all(isinstance(text, str) for text in texts):
        raise TypeError("cuda_arch, configs or baked are of another type")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


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
