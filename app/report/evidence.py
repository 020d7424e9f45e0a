"""Tables of what stands behind a verdict: conditions, gate, proof and guards, ready to be drawn in any format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.report.campaign_view import CampaignView, StartRecord
from app.report.wording import number


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of words; numeric names the columns that are set flush right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()


def proof_grid(view: CampaignView) -> Grid:
    """What each decode service said of itself, grouped: one row for starts that said the same."""
    groups = dict[tuple[str, ...], list[str]]()
    for record in view.starts:
        proof = record.proof or {}
        facts = (proof.get(k) for k in ("selector", "kernel_sha256", "config"))
        words = [str(f)[:16] if f else "not read" for f in facts]
        groups.setdefault((record.start.variant, *words), []).append(
            f"{record.start.block + 1}/{record.start.index + 1}"
        )
    rows = tuple((*facts, str(len(starts)), _first(starts)) for facts, starts in sorted(groups.items()))
    columns = ("variant", "selector", "kernel SHA-256", "config that runs", "starts", "block/start")
    return Grid("Read from inside the running decode service", columns, rows, frozenset({"starts"}))


def _first(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def guard_grid(view: CampaignView) -> Grid:
    """The largest value of every guard over all starts, and where it was seen."""
    worst = dict[str, tuple[float, str]]()
    for record in view.starts:
        for name, value in _guards(record):
            if name not in worst or value > worst[name][0]:
                worst[name] = (
                    value,
                    f"block {record.start.block + 1}, start {record.start.index + 1} ({record.start.variant})",
                )
    rows = tuple((name, number(value), where) for name, (value, where) in sorted(worst.items()))
    return Grid("Largest value of each guard", ("guard", "largest", "seen in"), rows, frozenset({"largest"}))


def _guards(record: StartRecord) -> Iterator[tuple[str, float]]:
    load = record.load or {}
    yield from _numbers(load.get("guards", {}))
    for level in load.get("levels", ()):
        yield from _numbers(level.get("guards", {}))


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def conditions_grid(view: CampaignView) -> Grid:
    """What each start was measured under: one row a field, with every value that occurred."""
    seen = dict[str, list[str]]()
    for record in view.starts:
        for name, value in (record.conditions or {}).items():
            if str(value) not in seen.setdefault(name, []):
                seen[name].append(str(value))
    rows = tuple((name, "; ".join(values)) for name, values in sorted(seen.items()))
    return Grid("Conditions of the starts", ("field", "value"), rows)


def manifest_grid(view: CampaignView) -> Grid:
    """The campaign's manifest, flattened; equal for everything that was compared."""
    skipped = {k: v for k, v in view.manifest.items() if k not in ("variants", "schema")}
    return Grid("Manifest", ("field", "value"), tuple(_flat(skipped)))


def plan_grid(view: CampaignView) -> Grid:
    """The plan's rules, flattened."""
    return Grid("Plan", ("rule", "value"), tuple(_flat(view.plan.to_json())))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _plain(value)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def gate_grid(view: CampaignView) -> Grid:
    """Findings of the gate per variant; what was compiled, for which architecture."""
    rows = tuple(row for name, report in sorted(view.gate.items()) for row in _findings(name, report))
    return Grid("What the gate found before anything was built", ("variant", "finding", "what"), rows)


def _findings(name: str, report: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    found = report.get("findings", ())
    if not found:
        return [(name, "passed", "nothing to report")]
    return [(name, str(f.get("kind", "")), str(f.get("what", f.get("text", "")))) for f in found]
