"""What containers prove of themselves from inside, held against their images' labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.engine.proof import Proof
from app.errors import ProofError
from app.image.daemon import connect, told
from app.image.identity import Identity, label_differences, parse_identity

# Run inside a container, it says on one line of JSON what that holds.
COMMAND = ("python3", "-m", "app.container", "proof")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one service's container proved from inside, beside its image's labels. cache: Triton's own metadata."""

    service: str
    identity: Identity
    image_id: str
    kernel_sha256: str
    selector: str
    cache: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Plain data of the JSON form."""
        return {
            "service": self.service,
            "image_id": self.image_id,
            "identity": self.identity.to_json(),
            "kernel_sha256": self.kernel_sha256,
            "selector": self.selector,
            "cache": [dict(entry) for entry in self.cache],
        }

    def proof(self, model: str) -> Proof:
        """As a campaign records it. config: the image's list, since Triton tells no choice among several."""
        named = self.identity
        return Proof(
            variant=named.variant,
            selector=self.selector,
            kernel_sha256=self.kernel_sha256,
            config=" ".join(named.configs) or named.selector,
            candidates=tuple(named.configs),
            simulated=named.simulated,
            conditions={"engine": named.engine, "model": model, "sglang": named.sglang_version},
        )


def read_evidence(service: str, image_id: str, code: int, output: str) -> Evidence:
    """What COMMAND said inside a service's container; ProofError where it differs from its image's labels."""
    lines = output.strip().splitlines()
    told_json = next((line for line in lines if line.startswith("{")), None)
    if code != 0 or told_json is None:
        raise ProofError(f"{service}: {(lines or ['said nothing'])[-1].removeprefix('decode-ab: ')}")
    found = json.loads(told_json)
    identity = parse_identity(json.dumps(found["identity"]).encode(), f"identity of {service}")
    if found["selector"] != identity.selector:
        raise ProofError(
            f"{service} was started with {found['selector']!r}; {identity.variant} needs {identity.selector}"
        )
    with told(f"inspecting {service}'s image"):
        api: Any = connect().api
        labels = api.inspect_image(image_id)["Config"]["Labels"] or {}
    if differing := label_differences(labels, identity):
        raise ProofError(f"{service}: {'; '.join(differing)}; the image was tagged by hand or tampered with")
    return Evidence(service, identity, image_id, found["kernel_sha256"], found["selector"], found["cache"])
