"""The gate's reports, kept by all that they follow from, so that a campaign of the same files need not compile them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.environment import ROOT
from app.errors import UnwrittenError
from app.gate.report import GateReport
from app.records import read_json, write_json
from kernels.signature import FOLDER as SIGNATURES
from kernels.toolchain import cache_folder, unusable

# What compiles and judges. The rest of kernels/ is what is judged, and a new file there changes no report of another.
COMPILING = (
    "compiler",
    "extract",
    "geometry",
    "inquiry",
    "limits",
    "processes",
    "resources",
    "sass",
    "signature",
    "toolchain",
    "tuned",
)


def keep_report(report: GateReport) -> None:
    """Keeps a report in the cache, in place of an earlier one of the same files; UnwrittenError where it cannot be."""
    names, digests = (report.variant, report.control), (report.kernel_sha256, report.control_sha256)
    target = _target(report.arch, report.geometry.local_heads, report.triton_version)
    try:
        write_json(_folder(names, digests) / target, report.to_json())
    except UnwrittenError as error:
        raise UnwrittenError(unusable(error.__cause__)) from error


def kept_report(
    names: tuple[str, str], digests: tuple[str, str], arch: int, heads: int, triton: str
) -> dict[str, Any] | None:
    """What was found of a variant and its control, of these names and files' digests; None where it was not asked.

    A digest is empty for one that runs no kernel of a file. heads: of one decode rank. triton: the version.
    """
    path = _folder(names, digests) / _target(arch, heads, triton)
    return dict(read_json(path)) if path.is_file() else None


def kept_targets(names: tuple[str, str], digests: tuple[str, str]) -> Iterator[str]:
    """For what else the gate ran on these files, in words."""
    for path in sorted(_folder(names, digests).glob("*.json")):
        arch, heads, triton = path.stem.split("-", 2)
        yield target_words(int(arch), int(heads), triton)


def target_words(arch: int, heads: int, triton: str) -> str:
    """A card, the query heads of one rank and a version of Triton, in words."""
    return f"sm_{arch}, {heads} heads and Triton {triton}"


def _target(arch: int, heads: int, triton: str) -> str:
    return f"{arch}-{heads}-{triton}.json"


def _folder(names: tuple[str, str], digests: tuple[str, str]) -> Path:
    key = json.dumps([names, digests, _code_sha256()])
    return cache_folder() / "reports" / hashlib.sha256(key.encode()).hexdigest()


@functools.cache
def _code_sha256() -> str:
    files = [*sorted((ROOT / "app" / "gate").glob("*.py")), *(ROOT / "kernels" / f"{name}.py" for name in COMPILING)]
    # How the kernels are launched decides what is compiled.
    files += sorted(SIGNATURES.glob("*.yaml"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
