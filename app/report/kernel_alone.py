"""The Amdahl check of a campaign, for drawing: what the kernel's own change predicts beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import RecordsError
from app.records import read_json
from app.report.campaign_view import CampaignView
from app.report.evidence import Grid
from app.report.predictions import Prediction
from app.report.wording import interval

FILE = "amdahl.json"


def read_checks(view: CampaignView) -> Sequence[Mapping[str, Any]]:
    """The checks kept by `invoke report --amdahl`; empty when none was made (RecordsError when unreadable)."""
    path = view.folder / FILE
    if not path.exists():
        return ()
    found = read_json(path)
    if not isinstance(found, list):
        raise RecordsError(f"{path} holds no list of checks; make them again with invoke report --amdahl")
    return found


def foreseen(checks: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Prediction]]:
    """By variant and concurrency: the kernel's prediction, its outcome the agreement with what was measured."""
    found = dict[str, dict[int, Prediction]]()
    for c in checks:
        predicted = (float(c["predicted_low_pct"]), float(c["predicted_high_pct"]))
        measured = (float(c["measured_low_pct"]), float(c["measured_high_pct"]))
        one = Prediction(int(c["concurrency"]), predicted, measured, str(c["agreement"]))
        found.setdefault(str(c["variant"]), {})[one.concurrency] = one
    return found


def checks_grid(checks: Sequence[Mapping[str, Any]]) -> Grid:
    """One row a check; a disagreement is spelled out, with the source of time ratio and share."""
    rows = tuple(
        (
            str(c["variant"]),
            str(c["concurrency"]),
            interval(c["predicted_low_pct"], c["predicted_high_pct"]),
            interval(c["measured_low_pct"], c["measured_high_pct"]),
            str(c["agreement"]) if c["agreement"] == "agrees" else f"DISAGREES: {c['agreement']}",
            str(c["source"]),
        )
        for c in checks
    )
    columns = ("variant", "C", "kernel predicts, %", "measured, %", "agreement", "source")
    return Grid("Kernel's own change times its share of the decode step, beside the effect", columns, rows)
