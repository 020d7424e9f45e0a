"""The figures of a report for machines: summary.json and levels.csv; docs/formats.md says what every field means."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from app.report import conclusions, slow_blocks
from app.report.campaign_view import CampaignView
from app.report.measured import Measured
from app.report.predictions import predictions

SCHEMA = 1
MEASURED = ("tokens_per_s", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "itl_p50_ms", "itl_p99_ms", "e2e_p50_ms")
COUNTED = ("decode_batch", "goodput_per_s", "requests", "failures", "short_outputs")
JUDGED = (
    "effect_pct",
    "low_pct",
    "high_pct",
    "simultaneous_low_pct",
    "simultaneous_high_pct",
    "p",
    "p_holm",
    "mde_pct",
)
PREDICTED = ("predicted_low_pct", "predicted_high_pct", "prediction")
WHERE = ("campaign", "simulated", "time_scale", "variant", "control", "concurrency", "starts")
COLUMNS = (*WHERE, *MEASURED, *COUNTED, "outcome", *JUDGED, "blocks_to_decide", "n_blocks", *PREDICTED)


def level_records(view: CampaignView) -> list[dict[str, Any]]:
    """One record per variant and concurrency with the fields of COLUMNS; None where a figure is not known."""
    return [_record(view, variant, c) for c in view.plan.concurrencies for variant in view.variants]


def render_csv(view: CampaignView) -> str:
    """levels.csv; an unknown figure is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(level_records(view))
    return out.getvalue()


def summary(view: CampaignView) -> dict[str, Any]:
    """summary.json as plain data: decisions, every level, and what is missing."""
    return {
        "schema": SCHEMA,
        "campaign": view.name,
        "simulated": view.simulated,
        "time_scale": view.plan.time_scale,
        "plan_sha256": view.plan.sha256(),
        "interim": bool(view.verdict.get("interim", True)),
        "blocks_planned": view.plan.blocks,
        "blocks_used": view.verdict.get("blocks_used", 0),
        "blocks_slow": slow_blocks.records(view),
        "blocks_void": [{"block": b, "reasons": list(reasons)} for b, reasons in view.void_blocks.items()],
        "decisions": [
            {"variant": j.variant, "control": j.control, "decision": j.decision, "reason": j.reason, "stamps": j.stamps}
            for j in view.judged
        ],
        "levels": level_records(view),
        "missing": list(view.missing),
    }


def ledger_records(view: CampaignView) -> list[dict[str, Any]]:
    """What the ledger says of each judged variant, as plain data; texts are empty where nothing was recorded."""
    return [
        {
            "variant": j.variant,
            "control": j.control,
            "decision": j.decision,
            "hypothesis": str(view.variant_record(j.variant).get("hypothesis") or ""),
            "prediction": conclusions.foretold(predictions(view.variant_record(j.variant), j)),
            "conclusion": j.reason,
            "prediction_outcome": conclusions.hypothesis_outcome(predictions(view.variant_record(j.variant), j)),
        }
        for j in view.judged
    ]


def _record(view: CampaignView, variant: str, concurrency: int) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(COLUMNS)
    record |= {"campaign": view.name, "simulated": view.simulated, "time_scale": view.plan.time_scale}
    record |= {"variant": variant, "control": view.plan.controls.get(variant), "concurrency": concurrency, "starts": 0}
    if measured := view.measured.get((variant, concurrency)):
        record |= dict(_figures(measured)) | {"starts": len(measured.starts)}
    judged = view.judged_variant(variant)
    if judged and (level := judged.level(concurrency)):
        values = asdict(level)
        record |= {k: values[k] for k in ("outcome", *JUDGED, "blocks_to_decide", "n_blocks")}
    for p in predictions(view.variant_record(variant), judged):
        if p.concurrency == concurrency:
            low, high = p.predicted
            record |= {"predicted_low_pct": low, "predicted_high_pct": high, "prediction": p.outcome}
    return record


def _figures(measured: Measured) -> Iterator[tuple[str, float | None]]:
    for name in (*MEASURED, *COUNTED):
        value = getattr(measured, name)
        yield name, (round(value, 6) if isinstance(value, float) else value) if math.isfinite(value) else None
