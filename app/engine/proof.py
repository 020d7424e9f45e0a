"""Proof, read from inside the running decode service, of which kernel runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from app.engine import Endpoints
from app.engine.probe import server_info
from app.errors import ProofError
from app.kernel.placed import PlacedKernel


@dataclass(frozen=True, slots=True)
class Proof:
    """What the decode service said of itself; config is the autotune choice among candidates, those that can launch.

    evidence: what a real engine was found to have imported, compiled and launched; empty where there is none to find.
    """

    variant: str
    selector: str
    kernel_sha256: str
    config: str
    candidates: tuple[str, ...]
    simulated: bool
    conditions: dict[str, Any]
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data for proof.json."""
        return asdict(self)


def read_proof(endpoints: Endpoints) -> Proof:
    """Asks the decode service; ProofError when it does not say which kernel it runs."""
    info = server_info(endpoints.decode_url).get("decode_ab")
    if not isinstance(info, dict):
        raise ProofError(f"{endpoints.decode_url}/server_info names no kernel; the service was not started by the lab")
    try:
        return Proof(
            variant=str(info["variant"]),
            selector=str(info["selector"]),
            kernel_sha256=str(info["kernel_sha256"]),
            config=str(info["config"]),
            candidates=tuple(str(c) for c in info.get("survivors", ())),
            simulated=bool(info["simulated"]),
            conditions={k: info[k] for k in ("engine", "time_scale", "calibration_sha256", "model") if k in info},
        )
    except KeyError as e:
        raise ProofError(f"{endpoints.decode_url}/server_info lacks {e}; it is another version of the lab") from e
    except (TypeError, RecursionError) as e:
        raise ProofError(
            f"{endpoints.decode_url}/server_info is of another form ({e}); the lab did not start it"
        ) from e


def check_proof(proof: Proof, kernel: PlacedKernel) -> Proof:
    """The proof itself when it matches what was put in place; else a ProofError that lists every difference."""
    wanted = {"variant": kernel.variant, "selector": kernel.selector, "kernel_sha256": kernel.sha256}
    found = proof.to_json()
    differing = [f"{k} is {found[k]!r}, not {v!r}" for k, v in wanted.items() if found[k] != v]
    if differing:
        raise ProofError(f"decode runs another kernel than {kernel.variant}: {'; '.join(differing)}")
    return proof
