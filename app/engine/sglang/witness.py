"""What the hooks inside a running SGLang wrote down, believed only of a process that lives below the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from app.engine.sglang.plugin.decode_ab_hooks import started_at
from app.errors import ProofError
from app.records import read_json


@dataclass(frozen=True, slots=True)
class Testimony:
    """One process: the kernel file it imported, its selector, the forced path, each shape attention was called with.

    A call: batch, heads, topk, extra_topk, capturing (into a CUDA graph); own: of the heads, this rank's own by
    SGLang's account; launched: those that the file's host code launches its kernel for.
    """

    pid: int
    kernel_file: Path
    kernel_sha256: str
    selector: str
    path: str
    calls: tuple[Mapping[str, Any], ...]

    @property
    def heads(self) -> int | None:
        """Query heads that the kernel was launched for; None when it never was."""
        return max((int(c["launched"]) for c in self.calls), default=None)


def read_testimonies(folder: Path, service: int) -> tuple[Testimony, ...]:
    """Of every living process of a service (its first process's number); files of others are left out.

    ProofError when no process of the service has written one.
    """
    found = []
    for pid in _family(service):
        file = folder / f"{pid}.json"
        if file.is_file() and (told := dict(read_json(file)))["started"] == started_at(pid):
            found.append(_testimony(told))
    if not found:
        raise ProofError(f"no process of the service wrote into {folder}; its log says why")
    return tuple(found)


def attending(testimonies: tuple[Testimony, ...]) -> Testimony:
    """The process that computes attention; any of them when none was called; ProofError when they contradict."""
    seen = {(t.kernel_file, t.kernel_sha256, t.selector, t.path) for t in testimonies}
    if len(seen) != 1:
        told = "; ".join(f"{file} {digest[:12]} {selector}" for file, digest, selector, _ in sorted(seen))
        raise ProofError(f"processes of one service run different kernels: {told}")
    return max(testimonies, key=lambda t: len(t.calls))


def _family(service: int) -> list[int]:
    try:
        top = psutil.Process(service)
        return [service, *(child.pid for child in top.children(recursive=True))]
    except psutil.NoSuchProcess as e:
        raise ProofError(f"process {service} has ended; there is nothing to prove") from e


def _testimony(told: Mapping[str, Any]) -> Testimony:
    return Testimony(
        pid=int(told["pid"]),
        kernel_file=Path(told["kernel_file"]),
        kernel_sha256=str(told["kernel_sha256"]),
        selector=str(told["selector"]),
        path=str(told["path"]),
        calls=tuple(told["calls"]),
    )
