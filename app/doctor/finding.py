"""What one check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination: found is what is there, remedy what to do about it (empty only when ok)."""

    status: Status
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.status == "ok") != (self.remedy == ""):
            raise ValueError(f"{self.status} finding {self.found!r} with remedy {self.remedy!r}")


def ok(found: str) -> Finding:
    """Nothing to do."""
    return Finding("ok", found)


def warn(found: str, remedy: str) -> Finding:
    """It will run, but slower, noisier or later than it could."""
    return Finding("warn", found, remedy)


def fail(found: str, remedy: str) -> Finding:
    """What was asked for cannot run like this."""
    return Finding("fail", found, remedy)


def skipped(found: str, remedy: str) -> Finding:
    """Not looked at; found says why."""
    return Finding("skipped", found, remedy)
