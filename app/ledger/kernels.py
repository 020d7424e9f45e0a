"""The ledger entry of a kernel benchmark: each variant's time alone beside its control's, and what compiling says."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import RecordsError
from app.gate.named import check_named
from app.gate.report import GateReport
from app.kernel.variant import Variant
from app.kernel.variants import load_variants
from app.ledger.campaigns import LEDGER, put_entry
from app.records import read_json
from app.report.markdown import escaped, table
from app.report.wording import listed
from kernels.resources import Resources

SCHEMA = 1
# The shape of the reference campaign: what a rank at TP 4 sees, one cache, every index filled.
SHAPE = {"heads": "16", "topk": "512", "extra": "0", "lengths": "full"}
Gate = Callable[..., GateReport]


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of one call: median of the repeats, least and most."""

    median: float
    low: float
    high: float

    def ratio(self, control: Times) -> tuple[float, float, float]:
        """Time over the control's: of the medians, and the least and most that the repeats allow."""
        return self.median / control.median, self.low / control.high, self.high / control.low


def record_kernels(results: Path, ledger: Path = LEDGER, gate: Gate = check_named) -> str:
    """Enters a benchmark's CSV, whose conditions lie beside it as JSON; RecordsError when either cannot be read."""
    conditions = dict(read_json(results.with_suffix(".json")))
    registry, times = load_variants(), _read(results)
    pairs = [(v, str(v.control)) for v in registry.variants.values() if v.name in times and v.control in times]
    if not pairs:
        raise RecordsError(f"{results} holds no variant beside its control at {SHAPE}; run invoke bench-kernel")
    parts = [_head(conditions), *(_against(v, times[v.name], times[c], gate) for v, c in pairs)]
    return put_entry(ledger, f"kernels {results.name}", "\n\n".join(parts))


def show_entry(results: str, as_json: bool) -> None:
    """Enters a benchmark, prints the entry and says in which file it stands."""
    entry = record_kernels(Path(results))
    as_words = f"{entry}\n\nledger: {LEDGER}"
    print(json.dumps({"schema": SCHEMA, "ledger": str(LEDGER), "entry": entry}, indent=1) if as_json else as_words)


def _read(results: Path) -> dict[str, dict[int, Times]]:
    found = dict[str, dict[int, Times]]()
    try:
        with results.open(newline="") as source:
            for row in csv.DictReader(source):
                if all(row[name] == value for name, value in SHAPE.items()):
                    times = Times(*(float(row[name]) for name in ("median_us", "low_us", "high_us")))
                    found.setdefault(row["provider"], {})[int(row["batch"])] = times
    except (OSError, KeyError, ValueError) as e:
        raise RecordsError(f"{results} is no benchmark of kernels ({e}); invoke bench-kernel writes them") from e
    return found


def _head(conditions: dict[str, Any]) -> str:
    card = escaped(str(conditions["device"]))
    versions = ", ".join(f"{name} {conditions[name]}" for name in ("driver", "torch", "triton"))
    return "\n".join(
        (
            f"## Kernels alone on {card}, {str(conditions['date'])[:10]}",
            "",
            f"- Basis: {escaped(str(conditions['method']))}; {escaped(versions)}; all in one run, so ratios count",
            "- Work: one decode attention call, 16 heads, top-k 512, one cache; serving is not measured here",
            f"- Command: `{conditions['command']}`",
        )
    )


def _against(variant: Variant, own: dict[int, Times], control: dict[int, Times], gate: Gate) -> str:
    batches = sorted(own.keys() & control.keys())
    rows = []
    for batch in batches:
        ratio, low, high = own[batch].ratio(control[batch])
        times = f"{control[batch].median:.1f}", f"{own[batch].median:.1f}"
        rows.append((str(batch), *times, f"{ratio:.2f}", f"{low:.2f} to {high:.2f}"))
    columns = ("batch", f"{variant.control}, us", f"{variant.name}, us", "time ratio", "range of the repeats")
    head = f"### {escaped(variant.name)} against {escaped(str(variant.control))}, kernel alone"
    return "\n".join(
        (
            head,
            f"- Hypothesis: {escaped(variant.hypothesis)}",
            "",
            table(columns, rows, columns[:4]),
            "",
            f"- Conclusion: {_conclusion(own, control, batches)}",
            *_compiled(variant, gate),
        )
    )


def _conclusion(own: dict[int, Times], control: dict[int, Times], batches: list[int]) -> str:
    groups: dict[str, list[int]] = {"slower": [], "faster": [], "not told apart": []}
    for batch in batches:
        _, low, high = own[batch].ratio(control[batch])
        groups["slower" if low > 1 else "faster" if high < 1 else "not told apart"].append(batch)
    parts = (f"{word} at batch {listed(held)}" for word, held in groups.items() if held)
    return "; ".join(parts)


def _compiled(variant: Variant, gate: Gate) -> Iterator[str]:
    for where, stock in (("this kernel", False), ("SGLang's own kernel", True)):
        report = gate(variant.name, stock=stock)
        found = [escaped(f.what) for f in report.findings if f.kind in ("refuse", "draw", "no-op")]
        sizes = ", ".join(_size(r) for r in report.resources if not r.error)
        words = "; ".join(found) or "machine code that differs from its control's"
        how = f"sm_{report.arch}, {where}, compiled with Triton {report.triton_version}, never launched"
        yield f"- {how}: {words} [{sizes}]"


def _size(found: Resources) -> str:
    name = f"{found.config} {found.use}".strip()
    return f"{name}: {found.registers} registers, {found.shared_bytes / 1024:.1f} KB, {found.spill_bytes} B spilled"
