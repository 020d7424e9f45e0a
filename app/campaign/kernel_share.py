"""The Amdahl check on a judged campaign: what the kernel alone predicts, beside what serving showed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from app.campaign.runs import RunFolder
from app.errors import RecordsError, UsageError
from app.records import read_json, write_json
from loadtest.judge.amdahl import KernelChange, check_amdahl

FIELDS = frozenset({"variant", "concurrency", "time_ratio", "share_low", "share_high", "source"})


def check_shares(folder: RunFolder, file: Path) -> list[str]:
    """One line for each kernel change of the file that the campaign measured; kept as amdahl.json in the run's folder.

    The file is a YAML list of mappings with exactly the keys of FIELDS: time_ratio is the kernel's time over its
    control's, shares are those of the control's decode step.
    """
    verdict = dict(read_json(folder.verdict_file))
    levels = {(v["variant"], x["concurrency"]): x for v in verdict["variants"] for x in v["levels"]}
    found = [(v, check_amdahl(c, levels[v, c.concurrency])) for v, c in _changes(file) if (v, c.concurrency) in levels]
    if not found:
        raise UsageError(f"{file} names no variant and concurrency that {folder.path.name} judged")
    write_json(folder.path / "amdahl.json", [{"variant": v} | asdict(c) for v, c in found])
    return [f"{v} {c}" for v, c in found]


def _changes(file: Path) -> Iterator[tuple[str, KernelChange]]:
    try:
        entries: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise RecordsError(f"{file} could not be read: {' '.join(str(e).split())}") from e
    if not isinstance(entries, list):
        raise UsageError(f"{file}: a list of kernel changes is needed")
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or set(entry) != FIELDS:
            raise UsageError(f"{file}: entry {number} needs exactly the keys {', '.join(sorted(FIELDS))}")
        try:
            values = {k: float(entry[k]) for k in ("time_ratio", "share_low", "share_high")}
            change = KernelChange(concurrency=int(entry["concurrency"]), source=str(entry["source"]), **values)
        except (TypeError, ValueError) as e:
            raise UsageError(f"{file}: entry {number}: {e}") from e
        yield str(entry["variant"]), change
