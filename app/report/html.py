"""The HTML report: one file with everything inside, no script, no outside resource, every outside word escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.report import (
    after_load,
    beside,
    conclusions,
    evidence,
    figures_beside,
    figures_effect,
    figures_load,
    kernel_alone,
    provenance,
    slow_blocks,
    transfer,
    wording,
)
from app.report.campaign_view import CampaignView
from app.report.curves import answer_grid, answers, step_grid, throughput_curves, unanswered
from app.report.predictions import Prediction, predictions
from app.report.same_code import find_same_code
from app.report.streams import Stream, pooled_gaps, read_streams
from loadtest.judge.slope import ThroughputCurve

TEMPLATES = Path(__file__).parent / "templates"


def render_html(view: CampaignView, question: Sequence[int] | None = None) -> str:
    """The whole page; question: concurrencies between which the slope of throughput is asked for, such as (60, 90)."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["capitalize_first"] = lambda words: words[:1].upper() + words[1:]
    environment.globals.update(wording=wording, conclusions=conclusions)
    # The style sheet is a file of this package, so it is the one text that goes in unescaped.
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return environment.get_template("report.html.j2").render(style=style, **_context(view, question))


def _context(view: CampaignView, question: Sequence[int] | None) -> dict[str, Any]:
    curves = throughput_curves(view, question)
    foreseen = {v: predictions(view.variant_record(v), view.judged_variant(v)) for v in view.variants}
    starts = [(r.start.block, r.start.index, r.start.variant, r.folder) for r in view.starts]
    streams, unread = read_streams(starts, view.plan.time_scale)
    return {
        "view": view,
        "foreseen": foreseen,
        "missing": (*view.missing, *(u.replace(f"{view.folder}/", "") for u in unread)),
        "effects": _effect_figures(view, foreseen),
        **_load_figures(view, streams, curves),
        **_beside_figures(view),
        **_kernel_alone(view),
        "answers": answers(view, curves),
        "unanswered": unanswered(view, curves) if question else "",
        "grids": {
            "origin": provenance.origin_grid(view),
            "answers": answer_grid(curves),
            "steps": step_grid(curves),
            "proof": evidence.proof_grid(view),
            "pairs": after_load.pairs_grid(view),
            "launches": after_load.launches_grid(view),
            "explained": after_load.explained_grid(view),
            "unseen": after_load.missing_grid(view),
            "gate": evidence.gate_grid(view),
            "resources": evidence.resources_grid(view),
            "guards": evidence.guard_grid(view),
            "conditions": evidence.conditions_grid(view),
            "manifest": evidence.manifest_grid(view),
            "plan": evidence.plan_grid(view),
        },
        "latencies": evidence.latency_grid(view),
        "same_code": _same_code(view),
        "slow_rule": slow_blocks.RULE,
        "slow_blocks": slow_blocks.lines(view),
        "limits": provenance.limits(view),
    }


def _effect_figures(
    view: CampaignView, foreseen: Mapping[str, tuple[Prediction, ...]]
) -> dict[str, tuple[Markup, Markup]]:
    delta = view.plan.delta
    return {
        j.variant: (
            figures_effect.forest(j, delta, {p.concurrency: p for p in foreseen[j.variant]}),
            figures_effect.differences(j, delta),
        )
        for j in view.judged
        if j.blocks
    }


def _beside_figures(view: CampaignView) -> dict[str, Any]:
    read, of = beside.read_beside(view), figures_load.styles(view.variants)
    return {
        "readings": beside.readings_grid(read),
        "transfers": transfer.transfer_grid(transfer.read_transfers(view)),
        "batches": figures_beside.charts(read, beside.RUNNING, of),
        "clocks": figures_beside.charts(read, beside.SM_CLOCK, of),
    }


def _kernel_alone(view: CampaignView) -> dict[str, Any]:
    checks = kernel_alone.read_checks(view)
    drawn = kernel_alone.foreseen(checks)
    forests = {
        j.variant: figures_effect.forest(j, view.plan.delta, drawn[j.variant])
        for j in view.judged
        if j.variant in drawn
    }
    return {"amdahl": kernel_alone.checks_grid(checks), "amdahl_forests": forests}


def _same_code(view: CampaignView) -> dict[str, Any] | None:
    found = find_same_code(view)
    if found is None:
        return None
    return {"found": found, "forest": figures_effect.forest(found.judged, view.plan.delta, {})}


def _load_figures(view: CampaignView, streams: list[Stream], curves: Sequence[ThroughputCurve]) -> dict[str, Any]:
    of = figures_load.styles(view.variants)
    pooled = pooled_gaps(streams)
    single = all(s.tokens_per_event == 1 for s in streams)
    what = "time between tokens" if single else "time between events"
    return {
        "keys": {name: figures_load.key(style) for name, style in of.items()},
        "throughput": _throughput(view, of, curves) if view.measured else (),
        "latency": figures_load.latency(view.measured, of) if view.measured else None,
        "gaps": {c: figures_load.gaps(pooled, c, of, what) for c in sorted({level for _, level in pooled})},
        "timelines": {b: figures_load.timeline(group, of) for b, group in figures_load.by_block(streams).items()},
    }


def _throughput(view: CampaignView, of: figures_load.Styles, curves: Sequence[ThroughputCurve]) -> tuple[Markup, ...]:
    knees = {c.variant: c.knee for c in curves if c.knee}
    charts = [figures_load.throughput(view.measured, of, knees, view.plan.concurrencies, whole=True)]
    first, last = (curves[0].answer.start, curves[0].answer.end) if curves else (0, 0)
    asked = tuple(c for c in view.plan.concurrencies if first <= c <= last)
    if asked and asked != view.plan.concurrencies:
        charts.append(figures_load.throughput(view.measured, of, knees, asked, whole=False))
    return tuple(charts)
