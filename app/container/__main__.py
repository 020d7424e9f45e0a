"""`python -m app.container`: what the Dockerfile's build steps, the entrypoint and the probes call."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from app.errors import GateError, LabError, NotReadyError, ProofError, UsageError

CODES: tuple[tuple[type[LabError], int], ...] = (
    (UsageError, 2),
    (GateError, 3),
    (NotReadyError, 4),
    (ProofError, 5),
)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; 2 wrong use, 3 gate, 4 not ready, 5 proof."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except LabError as e:
        print(f"decode-ab: {e}", file=sys.stderr)
        return next((code for kind, code in CODES if isinstance(e, kind)), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app.container")
    commands = parser.add_subparsers(required=True)
    bake = commands.add_parser("bake", help="make a variant's kernel layer (build stage)")
    bake.add_argument("--variant", required=True)
    bake.add_argument("--engine", choices=("sim", "sglang"), required=True)
    bake.add_argument("--release", required=True)
    bake.add_argument("--arch", type=int, required=True)
    bake.add_argument("--out", type=Path, required=True)
    bake.set_defaults(run=_bake)
    commands.add_parser("check", help="compare the image with its identity").set_defaults(run=_check)
    commands.add_parser("proof", help="print what runs here, as JSON").set_defaults(run=_proof)
    probe = commands.add_parser("health", help="exit 0 when a URL answers 200")
    probe.add_argument("url")
    probe.set_defaults(run=_health)
    for role in ("prefill", "decode", "router"):
        commands.add_parser(role, help=f"run the {role} service").set_defaults(run=_serve, role=role)
    return parser


def _bake(given: argparse.Namespace) -> int:
    from app.container.bake import bake_layer

    identity = bake_layer(given.variant, given.engine, given.release, given.arch, given.out)
    print(f"{identity.variant}: kernel sha256 {identity.kernel_sha256}, base {identity.base_sha256}")
    return 0


def _check(_: argparse.Namespace) -> int:
    from app.container.check import check_image
    from app.image.identity import read_identity

    identity = read_identity()
    check_image(identity)
    print(f"{identity.variant}: image and identity agree")
    return 0


def _proof(_: argparse.Namespace) -> int:
    from app.container.evidence import evidence

    print(json.dumps(evidence(os.environ)))
    return 0


def _health(given: argparse.Namespace) -> int:
    from app.container.health import healthy

    return 0 if healthy(given.url) else 1


def _serve(given: argparse.Namespace) -> int:
    from app.container.routing import router
    from app.container.serve import become, serve

    become(router(os.environ) if given.role == "router" else serve(given.role, os.environ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
