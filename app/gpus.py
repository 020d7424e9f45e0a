"""The GPUs of this host, as nvidia-smi answers questions about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from app.command import NOT_FOUND, Runner, run_command
from app.errors import DriverMissingError, NotReadyError


def query(fields: Sequence[str], run: Runner = run_command) -> tuple[Mapping[str, str], ...]:
    """What each GPU says of the fields, as text; DriverMissingError, or NotReadyError with the driver's complaint."""
    asked = run(("nvidia-smi", f"--query-gpu={','.join(('index', *fields))}", "--format=csv,noheader"))
    if asked.code == NOT_FOUND:
        raise DriverMissingError("no nvidia-smi here, so no GPU for SGLang; the simulated engine needs none")
    lines = asked.out.splitlines() if asked.code == 0 else []
    rows = [[value.strip() for value in line.split(",")] for line in lines]
    # A message of the driver may stand in a row's place.
    told = [row for row in rows if len(row) == len(fields) + 1 and row[0].isdecimal()]
    if not told:
        raise NotReadyError(f"nvidia-smi tells no GPU's {', '.join(fields)}: {asked.said}")
    return tuple(dict(zip(("index", *fields), row, strict=True)) for row in told)


def arch_of(capability: str) -> int:
    """Compute capability 12.0 as 120; NotReadyError for what is none, such as [N/A]."""
    if not re.fullmatch(r"\d+\.\d+", capability):
        raise NotReadyError(f"nvidia-smi tells no compute capability but {capability!r}; install a newer driver")
    return int(capability.replace(".", ""))
