"""One tree for everything a user can mend.

LabError
├── UsageError            a wrong name, number or combination in what was asked
│   └── VariantError      a variant file says something that cannot be
├── GateError             a variant cannot be built
│   ├── PatchError        the kernel file cannot be changed as asked
│   │   ├── UnknownBaseError      the file or wheel is not the pinned one
│   │   ├── EncodingUnknownError  the file is not UTF-8
│   │   ├── KernelMissingError    no function of that name
│   │   ├── KernelAmbiguousError  several functions of that name
│   │   ├── DecoratorUnknownError no autotune decorator, or one in a form that cannot be rewritten
│   │   ├── KeyUnknownError       a key or constant names no argument of the kernel
│   │   └── ConstantMissingError  no single module-level literal of that name
│   └── BuildError        an image could not be made
├── NotReadyError         a service, port, wheel or daemon is missing or did not come up
│   ├── DriverMissingError    this host has no nvidia-smi
│   └── ComposeMissingError   no docker command, or none with its compose plugin
├── ProofError            what runs is not what was asked for
├── LoadError             a measurement failed
│   └── RecordsError      rows, plans or verdicts cannot be read or written
│       └── UnwrittenError        a file cannot be written where it belongs
└── InvalidCampaignError  the campaign's parts do not belong together

`tasks.py` alone turns these into exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# The longest message; values of any size from outside end up in messages.
LIMIT_CHARACTERS = 2000


class LabError(Exception):
    """A fault whose one-line message says what, which value, and how to mend it.

    Messages quote files, servers and tools, so what would break the line or steer a terminal is shown as an escape.
    """

    def __str__(self) -> str:
        return printable(super().__str__(), LIMIT_CHARACTERS)


def printable(words: str, limit: int | None = None) -> str:
    """Words from outside on one line: control and unpaired characters as escapes, cut off at `limit` characters."""
    shown = words if limit is None or len(words) <= limit else f"{words[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


class UsageError(LabError):
    """What was asked for cannot be."""

    @classmethod
    def unknown(cls, kind: str, value: str, known: Sequence[str]) -> UsageError:
        """An unknown name, with the names that exist."""
        return cls(f"unknown {kind} {value!r}; known: {', '.join(sorted(known)) or 'none'}")


class VariantError(UsageError):
    """A variant file is wrong at a line (1-based; None when the whole file is meant)."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        self.path, self.line, self.what = path, line, what
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {what}")


class GateError(LabError):
    """A variant cannot be built."""


class PatchError(GateError):
    """The kernel file cannot be changed as asked."""


class UnknownBaseError(PatchError):
    """The file or wheel is not the pinned one."""


class EncodingUnknownError(PatchError):
    """The file is not UTF-8."""


class KernelMissingError(PatchError):
    """The file has no function of that name."""


class KernelAmbiguousError(PatchError):
    """The file has several functions of that name."""


class DecoratorUnknownError(PatchError):
    """The kernel has no autotune decorator, or one in a form that cannot be rewritten or read."""


class KeyUnknownError(PatchError):
    """A key or a config's constant names no argument of the kernel."""


class ConstantMissingError(PatchError):
    """The file has no single module-level literal of that name."""


class BuildError(GateError):
    """An image could not be made."""


class NotReadyError(LabError):
    """Something needed is missing or did not come up."""


class DriverMissingError(NotReadyError):
    """This host has no nvidia-smi."""


class ComposeMissingError(NotReadyError):
    """No docker command, or none with its compose plugin."""


class ProofError(LabError):
    """What runs is not what was asked for."""


class LoadError(LabError):
    """A measurement failed."""


class RecordsError(LoadError):
    """Rows, plans or verdicts cannot be read or written."""


class UnwrittenError(RecordsError):
    """A file cannot be written where it belongs."""


class InvalidCampaignError(LabError):
    """The campaign's parts do not belong together."""
