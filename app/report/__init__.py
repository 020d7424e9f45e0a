"""Reports of one campaign: on the terminal, as one HTML file, as markdown, and as JSON and CSV for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.lazily import lazily
from app.records import write_json, write_text

# Whoever names a module of this package loads the package first, long before a report is drawn.
with lazily("app"):
    from app.report import campaign_view, export, html, markdown


@dataclass(frozen=True, slots=True)
class Reports:
    """The files that were written, and the view that they were drawn from."""

    view: campaign_view.CampaignView
    html: Path
    markdown: Path
    summary: Path
    levels: Path


def write_reports(folder: Path, question: Sequence[int] | None = None) -> Reports:
    """Draws a run folder in every format, into that folder; RecordsError when its plan cannot be read.

    question: concurrencies between which the slope of throughput is asked for, such as (60, 90).
    """
    view = campaign_view.read_campaign(folder)
    files = Reports(view, *(folder / n for n in ("report.html", "report.md", "summary.json", "levels.csv")))
    write_text(files.html, html.render_html(view, question))
    write_text(files.markdown, markdown.render_markdown(view))
    write_json(files.summary, export.summary(view))
    write_text(files.levels, export.render_csv(view))
    return files
