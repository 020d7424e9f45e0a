"""The newest campaign that compared a control with its own code: what the lab finds where there is nothing to find."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import LabError
from app.report.campaign_view import CampaignView
from app.report.judged import Judged, judged_variants


@dataclass(frozen=True, slots=True)
class SameCode:
    """A comparison of one code with itself (A/A) and the campaign that made it."""

    campaign: str
    judged: Judged

    @property
    def claims(self) -> int:
        """Concurrencies at which a difference was claimed; each one is a false verdict."""
        return sum(level.outcome in ("better", "worse") for level in self.judged.levels)


def find_same_code(view: CampaignView) -> SameCode | None:
    """This campaign's own comparison, else that of the newest sibling, simulated or not as this one is; or None."""
    return next(_comparisons(view), None)


def _comparisons(view: CampaignView) -> Iterator[SameCode]:
    yield from (SameCode(view.name, j) for j in view.judged if j.decision == "same-code")
    siblings = view.folder.resolve().parent.glob("*/verdict.json")
    for path in sorted(siblings, reverse=True):
        if path.parent.name not in (view.name, "latest"):
            yield from _in_file(path, view.simulated)


def _in_file(path: Path, simulated: bool) -> Iterator[SameCode]:
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
        if verdict.get("simulated") is simulated and '"same-code"' in json.dumps(verdict):
            yield from (SameCode(path.parent.name, j) for j in judged_variants(verdict) if j.decision == "same-code")
    except (OSError, ValueError, AttributeError, LabError):
        # A sibling that cannot be read is no part of this report.
        return
