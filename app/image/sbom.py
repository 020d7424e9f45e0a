"""What an image is made of, as CycloneDX: from the lock files it is built with, so equal inputs give equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.environment import ROOT
from app.errors import BuildError
from app.image.identity import Identity
from app.settings import Deployment

SPEC_VERSION = "1.5"
# Python packages by engine: what is in the image. What only builds it is named as excluded.
LOCKS = {
    "sim": (("base.lock", "required"), ("sglang-0.5.17.lock", "required")),
    "sglang": (("patch.lock", "excluded"),),
}
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]*?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill_of_materials(identity: Identity, settings: Deployment, requirements: Path = ROOT / "requirements") -> str:
    """The CycloneDX document of a variant's image: base image, Python packages with their hashes, the kernel file."""
    parts = [_base(identity, settings), _kernel(identity)]
    for lock, scope in LOCKS[identity.engine]:
        parts += [part | {"scope": scope} for part in read_lock(requirements / lock)]
    title = f"decode-ab/{identity.engine}/{identity.variant}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {"type": "container", "name": title, "version": identity.digest}},
        "components": parts,
    }
    # A number of its own by content and not by chance.
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))
    return json.dumps(document | {"serialNumber": f"urn:uuid:{number}"}, indent=1, sort_keys=True) + "\n"


def bill_sha256(document: str) -> str:
    """The digest that the image's label names."""
    return hashlib.sha256(document.encode()).hexdigest()


def read_lock(lock: Path) -> Iterator[dict[str, Any]]:
    """The packages of a lock file as components; BuildError for a line without a pin or a package without a hash."""
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if digests := _HASH.findall(text):
            found[-1]["hashes"] += [{"alg": "SHA-256", "content": digest} for digest in digests]
        elif pin := _PIN.match(text):
            found.append(_package(pin["name"], pin["version"], pin["marker"]))
        else:
            raise BuildError(f"{lock.name}:{number}: {text[:60]!r} is no package pinned with its hash")
    if bare := [part["name"] for part in found if not part["hashes"]]:
        raise BuildError(f"{lock.name}: {', '.join(bare)} has no hash; lock it again")
    yield from found


def _package(name: str, version: str, marker: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "library", "name": name, "version": version, "hashes": []}
    part["purl"] = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    part["bom-ref"] = part["purl"] + (f"#{hashlib.sha256(marker.encode()).hexdigest()[:8]}" if marker else "")
    return part | ({"properties": [{"name": "python:marker", "value": marker}]} if marker else {})


def _base(identity: Identity, settings: Deployment) -> dict[str, Any]:
    reference = settings.python_image if identity.simulated else settings.sglang_image
    name, _, digest = reference.partition("@sha256:")
    hashes = [{"alg": "SHA-256", "content": digest}] if digest else []
    return {"type": "container", "name": name, "bom-ref": f"base:{reference}", "hashes": hashes, "scope": "required"}


def _kernel(identity: Identity) -> dict[str, Any]:
    return {
        "type": "file",
        "name": identity.kernel_file,
        "bom-ref": f"kernel:{identity.kernel_sha256}",
        "hashes": [{"alg": "SHA-256", "content": identity.kernel_sha256}],
        "pedigree": {"notes": f"{identity.variant}, from SGLang {identity.sglang_version}'s {identity.base_sha256}"},
        "scope": "required",
    }
