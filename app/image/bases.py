"""The published images that everything is built on: named by digest wherever they stand, and moved only on purpose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import UsageError
from app.records import write_text

# Every file that names one; a test holds that no other file does.
FILES = (
    "Dockerfile",
    "docker-compose.yml",
    "compose.monitoring.yml",
    ".env.example",
    "app/settings.py",
    "deploy/sglang-wheel.Dockerfile",
)
REFERENCE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._/-]*):(?P<tag>[A-Za-z0-9_][\w.-]{0,127})@sha256:(?P<digest>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Move:
    """One file in which a pin was moved, and at how many places."""

    file: str
    places: int


def pinned_images(root: Path = ROOT) -> dict[str, str]:
    """Each image's whole reference by its name; UsageError when files disagree about one."""
    found: dict[str, dict[str, str]] = {}
    for file in FILES:
        for match in REFERENCE.finditer((root / file).read_text(encoding="utf-8")):
            found.setdefault(match["name"], {}).setdefault(match[0], file)
    for name, references in found.items():
        if len(references) > 1:
            places = "; ".join(f"{file}: {reference}" for reference, file in references.items())
            raise UsageError(f"{name} is pinned in two ways ({places}); make them one by hand first")
    return {name: next(iter(references)) for name, references in sorted(found.items())}


def move_pin(reference: str, root: Path = ROOT) -> tuple[str, list[Move]]:
    """Moves an image's pin in every file that has it; the old reference and the files.

    UsageError: no NAME:TAG@sha256:DIGEST, an image that is not pinned here, or the pin it has already. Nothing is asked
    of a registry: the digest is what whoever moves the pin has looked at.
    """
    wanted = REFERENCE.fullmatch(reference)
    if wanted is None:
        raise UsageError(
            f"{reference!r} is no NAME:TAG@sha256:DIGEST; a tag moves, so the digest is needed, which "
            "docker buildx imagetools inspect NAME:TAG shows"
        )
    pins = pinned_images(root)
    if wanted["name"] not in pins:
        raise UsageError.unknown("base image", wanted["name"], list(pins))
    old = pins[wanted["name"]]
    if old == reference:
        raise UsageError(f"{reference} is the pin already")
    return old, list(_rewrite(root, {old: reference}))


def _rewrite(root: Path, changes: Mapping[str, str]) -> list[Move]:
    moves = []
    for file in FILES:
        text = (root / file).read_text(encoding="utf-8")
        places = sum(text.count(old) for old in changes)
        for old, new in changes.items():
            text = text.replace(old, new)
        if places:
            write_text(root / file, text)
            moves.append(Move(file, places))
    return moves
