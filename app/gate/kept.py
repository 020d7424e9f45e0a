"""The gate's reports, kept by all that they follow from, so that a campaign of the same files need not compile them."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from app.environment import ROOT
from app.gate.report import GateReport
from app.records import read_json, write_json
from kernels.toolchain import cache_folder


def keep_report(report: GateReport) -> None:
    """Keeps a report in the cache, in place of an earlier one of the same files."""
    names, digests = (report.variant, report.control), (report.kernel_sha256, report.control_sha256)
    place = _place(names, digests, report.arch, report.geometry.local_heads, report.triton_version)
    write_json(place, report.to_json())


def kept_report(
    names: tuple[str, str], digests: tuple[str, str], arch: int, heads: int, triton: str
) -> dict[str, Any] | None:
    """What was found of a variant and its control, of these names and files' digests; None where it was not asked.

    A digest is empty for one that runs no kernel of a file. heads: of one decode rank. triton: the version.
    """
    path = _place(names, digests, arch, heads, triton)
    return dict(read_json(path)) if path.is_file() else None


def _place(names: tuple[str, str], digests: tuple[str, str], arch: int, heads: int, triton: str) -> Path:
    key = json.dumps([names, digests, arch, heads, triton, _code_sha256()])
    return cache_folder() / "reports" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


@functools.cache
def _code_sha256() -> str:
    files = [*(ROOT / "app" / "gate").glob("*.py"), *(ROOT / "kernels").glob("*.py")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(files))).hexdigest()
