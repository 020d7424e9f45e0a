"""EXPERIMENTS.md: every campaign's hypothesis, prediction, result and conclusion, negative ones as carefully as others.

Entries stand between comments that name them: writing one again replaces it, and words around entries are kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from app.campaign.runs import RUNS
from app.errors import RecordsError
from app.records import write_text
from app.report import conclusions
from app.report.campaign_view import CampaignView, read_campaign
from app.report.judged import Judged
from app.report.markdown import escaped, level_table
from app.report.predictions import predictions

LEDGER = Path("EXPERIMENTS.md")
HEAD = """# Experiments

Every campaign with its hypothesis, prediction, result and conclusion; negative results included. Effects are changes of
output tokens per second against the control, in percent, with intervals that hold for all concurrencies together.
"""


def ledger_of(view: CampaignView) -> Path:
    """The ledger that a campaign is entered in: of what was simulated that beside the runs, else the repository's."""
    # Trying the lab is no experiment of the repository's.
    return RUNS / LEDGER if view.simulated else LEDGER


def record_campaign(folder: Path, ledger: Path | None = None) -> str:
    """Writes a judged campaign's entry, in place of an earlier one, and returns it; RecordsError without a verdict.

    ledger: by default that of `ledger_of`.
    """
    view = read_campaign(folder)
    if not view.judged:
        why = next((m for m in view.missing if "verdict" in m), "verdict.json holds no variant")
        raise RecordsError(f"campaign {view.name} cannot be entered: {why}; judge it first")
    return put_entry(ledger or ledger_of(view), f"campaign {view.name}", campaign_entry(view))


def record_promotion(
    variant: str,
    target: str,
    *,
    decision: str,
    campaign: str | None,
    reason: str,
    at: datetime | None = None,
    ledger: Path = LEDGER,
) -> str:
    """Adds an entry for a variant made stable against or without a verdict; target names what was moved."""
    at = at or datetime.now(UTC)
    lines = (
        f"## {at:%Y-%m-%d %H:%M} UTC: {escaped(variant)} promoted by force",
        f"- What: {escaped(target)}",
        f"- Verdict at that time: {escaped(decision)}" + (f" (campaign {escaped(campaign)})" if campaign else ""),
        f"- Reason given: {escaped(reason) or 'none'}",
    )
    return put_entry(ledger, f"promotion {at:%Y%m%dT%H%M%S.%f} {_key(variant)}", "\n".join(lines))


def campaign_entry(view: CampaignView) -> str:
    """The entry of one campaign, without its marks."""
    mark = conclusions.simulated_mark(view)
    head = [f"## {escaped(view.name)}: {escaped(conclusions.headline(view))}", f"**{mark}**" if mark else ""]
    parts = [*head, "\n".join(_facts(view)), *(_variant(view, judged) for judged in view.judged)]
    return "\n\n".join(filter(None, parts))


def _facts(view: CampaignView) -> Iterator[str]:
    lengths = view.plan.lengths
    yield f"- Date: {_date(view)}"
    yield f"- Basis: {conclusions.basis(view)}"
    yield f"- Work: {lengths.prompt_tokens} tokens in, {lengths.output_tokens} out; plan {view.plan.sha256()[:16]}"
    yield f"- Conditions: {escaped(conclusions.conditions(view))}"
    if own := conclusions.own_calibration(view):
        yield f"- Calibration: {escaped(own)}"
    yield from (f"- Warning: {escaped(line)}" for line in conclusions.warnings(view))
    yield from (f"- Void: {escaped(line)}" for line in conclusions.void_blocks(view))


def _date(view: CampaignView) -> str:
    return max((str(b["finished_at"])[:10] for b in view.blocks if "finished_at" in b), default="not recorded")


def _variant(view: CampaignView, judged: Judged) -> str:
    record = view.variant_record(judged.variant)
    foreseen = predictions(record, judged)
    lines = [
        f"### {escaped(judged.variant)} against {escaped(judged.control)}: {judged.decision}",
        f"- Hypothesis: {escaped(str(record.get('hypothesis') or 'not recorded'))}",
        f"- Prediction: {conclusions.foretold(foreseen) or conclusions.unforetold(record)}",
    ]
    closing = [f"- Conclusion: {escaped(judged.reason)}. Prediction: {conclusions.outcomes_counted(foreseen)}."]
    closing += [
        f"- {escaped(s)}" for s in (*conclusions.doubts(judged), conclusions.shape(judged), *judged.stamps) if s
    ]
    return "\n".join(lines) + f"\n\n{level_table(view, judged)}\n\n" + "\n".join(closing)


def put_entry(ledger: Path, key: str, entry: str) -> str:
    """Writes an entry under its key, in place of an earlier one of that key, and returns it."""
    whole = f"<!-- begin {key} -->\n{entry}\n<!-- end {key} -->"
    with _held(ledger):
        text = _text(ledger)
        old = re.compile(rf"<!-- begin {re.escape(key)} -->\n.*?<!-- end {re.escape(key)} -->", re.DOTALL)
        known = old.search(text)
        write_text(ledger, old.sub(lambda _: whole, text, 1) if known else f"{text.rstrip()}\n\n{whole}\n")
    return entry


def _text(ledger: Path) -> str:
    try:
        return ledger.read_text(encoding="utf-8") if ledger.is_file() else HEAD
    except (OSError, UnicodeDecodeError) as e:
        raise RecordsError(f"{ledger} could not be read ({e}); mend or move it, then write the entry again") from e


def _key(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


@contextlib.contextmanager
def _held(ledger: Path) -> Iterator[None]:
    # The folder is locked, not the file: the file is replaced by a rename, and no lock file is left behind.
    folder = os.open(ledger.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
