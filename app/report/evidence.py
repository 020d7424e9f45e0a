"""Tables of what stands behind a verdict: conditions, gate, proof and guards, ready to be drawn in any format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.records import read_json
from app.report.campaign_view import CampaignView, StartRecord
from app.report.judged import Judged
from app.report.wording import interval, number, signed
from loadtest.measure.reconcile import MAX_CPU_SHARE

LATENCIES = {"ttft_p95_ms": "TTFT p95", "tpot_p50_ms": "TPOT median", "itl_p99_ms": "ITL p99"}
COMPILED = (
    ("shared_bytes", "shared B"),
    ("registers", "registers"),
    ("spill_bytes", "spilled B"),
    ("ctas_per_sm", "CTAs per SM"),
    ("mma", "tensor-core"),
    ("error", "refused"),
)
IMPORTED_UNUSED = ("seed", "window", "time_scale")


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
        words = [str(proof.get(k) or "not read") for k in ("selector", "kernel_sha256", "config")]
        words[1] = words[1][:16]
        words.append(_plain(proof.get("candidates")))
        groups.setdefault((record.start.variant, *words), []).append(
            f"{record.start.block + 1}/{record.start.index + 1}"
        )
    rows = tuple((*facts, str(len(starts)), _first(starts)) for facts, starts in sorted(groups.items()))
    columns = ("variant", "selector", "kernel SHA-256", "config that runs", "drawn from", "starts", "block/start")
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
    shapes = _conformance(view)
    limits = {"loop_lag_p99_ms": view.plan.window.max_loop_lag_ms, "cpu_share": MAX_CPU_SHARE}
    rows = tuple(
        (name, number(value), number(limits.get(name)), where) for name, (value, where) in sorted(worst.items())
    )
    rows = (*shapes, *rows)
    columns = ("guard", "largest", "limit", "seen in")
    return Grid("Largest value of each guard of the client", columns, rows, frozenset({"largest", "limit"}))


def _conformance(view: CampaignView) -> tuple[tuple[str, str, str, str], ...]:
    path = view.folder / "conformance.json"
    if not path.exists():
        return ()
    found = read_json(path)
    where = f"before the first start, {found['shapes']} shapes played"
    return (("stream shapes that the client failed", str(found["shapes"] - found["ok"]), "0", where),)


def _guards(record: StartRecord) -> Iterator[tuple[str, float]]:
    for level in (record.load or {}).get("levels", ()):
        yield from _numbers(level.get("guards", {}))


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def latency_grid(view: CampaignView) -> Grid:
    """Changes of latency figures beside the verdict."""
    metrics = tuple(dict.fromkeys(s.metric for j in view.judged for s in j.secondary))
    rows = tuple(row for judged in view.judged for row in _latencies(judged, metrics)) if metrics else ()
    names = tuple(f"{LATENCIES.get(metric, metric)}, %" for metric in metrics)
    caption = "Latency against the control: positive is slower, intervals are pointwise, no verdict hangs on it"
    return Grid(caption, ("variant", "C", *names), rows, frozenset(("C", *names)))


def _latencies(judged: Judged, metrics: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    found = {(s.metric, s.concurrency): s for s in judged.secondary}
    for level in judged.levels:
        each = [found.get((metric, level.concurrency)) for metric in metrics]
        words = [f"{signed(s.effect_pct)} ({interval(s.low_pct, s.high_pct)})" if s else "-" for s in each]
        yield judged.variant, str(level.concurrency), *words


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
    """The plan's rules, flattened; of an import without those that another driver knew nothing of."""
    unused = IMPORTED_UNUSED if view.imported else ()
    kept = {name: value for name, value in view.plan.to_json().items() if name not in unused}
    return Grid("Plan", ("rule", "value"), tuple(_flat(kept)))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def gate_grid(view: CampaignView) -> Grid:
    """Findings of the gate per variant."""
    rows = tuple(row for name, report in sorted(view.gate.items()) for row in _findings(name, report))
    return Grid("What the gate found before anything was built", ("variant", "finding", "config", "what"), rows)


def _findings(name: str, report: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for finding in report.get("findings", ()):
        kind, config, what = (str(finding.get(k) or "") for k in ("kind", "config", "what"))
        yield name, kind, config, what
    yield name, "statement", "", str(report.get("statement", ""))


def resources_grid(view: CampaignView) -> Grid:
    """What each configuration was compiled to: nothing here was launched."""
    rows = tuple(
        (name, _named(config), *(_plain(config.get(k)) for k, _ in COMPILED))
        for name, report in sorted(view.gate.items())
        for config in report.get("configs", ())
    )
    words = tuple(word for _, word in COMPILED)
    return Grid("Compiled, never launched", ("variant", "config", *words), rows, frozenset(words))


def _named(config: Mapping[str, Any]) -> str:
    """'(16,4,1) two caches': a configuration is compiled once for each use of the kernel."""
    return f"{config.get('config') or ''} {config.get('use') or ''}".strip()
