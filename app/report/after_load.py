"""Tables of what each variant's first start showed after its load: outputs and answers compared, launches traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.report.campaign_view import CampaignView
from app.report.evidence import Grid
from app.report.judged import Level
from app.report.wording import interval, number, signed
from loadtest.judge.amdahl import predicted_pct

LAUNCH = ("shared_bytes", "registers", "count")
STEP = ("per_step", "mean_us", "us_per_step")


def pairs_grid(view: CampaignView) -> Grid:
    """Each variant's attention and log probabilities against its control's, beside the control's own difference."""
    rows = [*_compared(view, "outputs", _outputs_row), *_compared(view, "logprobs", _answers_row)]
    columns = ("variant", "control", "what", "against the control", "control against itself", "limit")
    return Grid("On the same inputs, in each variant's own process", columns, tuple(rows), frozenset(columns[3:]))


def launches_grid(view: CampaignView) -> Grid:
    """What a profiler saw the variant's kernel launched with in decode, all of it as the gate predicts."""
    rows = tuple(row for variant, shown in _shown(view, "trace") for row in _launch_rows(variant, shown))
    columns = ("variant", "requests", "config", "grid", "threads", "shared B", "registers", "launches")
    timed = ("a step", "mean us", "us a step", "share of GPU time")
    numeric = frozenset({"requests", *columns[4:], *timed})
    return Grid("Seen by a profiler in the running service", (*columns, *timed), rows, numeric)


def explained_grid(view: CampaignView) -> Grid:
    """What the kernel's own time in the traced steps predicts for throughput, beside what was measured there.

    Predicted: the control's step with the variant's kernel time in place of its own, all else left as it is.
    """
    traced = {variant: shown for variant, shown in _shown(view, "trace") if _timed(shown)}
    rows = []
    for judged in view.judged:
        own, control = traced.get(judged.variant), traced.get(judged.control)
        if own is None or control is None or own["requests"] != control["requests"]:
            continue
        level = judged.level(own["requests"])
        share = control["us_per_step"] / control["gpu_us_per_step"]
        told = predicted_pct(own["us_per_step"] / control["us_per_step"], share)
        times = (_figure(shown["us_per_step"], 1) for shown in (control, own))
        found = (signed(level.effect_pct), _simultaneous(level)) if level else ("-", "-")
        head = (judged.variant, judged.control, str(own["requests"]))
        rows.append((*head, *times, _figure(share, 3), signed(told), *found))
    columns = ("variant", "control", "C", "control us a step", "variant us a step", "control's share")
    predicted = ("kernel predicts %", "measured %", "interval %")
    caption = "What the traced kernel time explains of the effect"
    return Grid(caption, (*columns, *predicted), tuple(rows), frozenset({*columns[2:], *predicted}))


def missing_grid(view: CampaignView) -> Grid:
    """What could not be looked at, and why."""
    rows = tuple(
        (variant, part, str(shown["why_not"]))
        for part in ("outputs", "logprobs", "trace")
        for variant, shown in _shown(view, part)
        if shown.get("why_not")
    )
    return Grid("Not looked at after the load", ("variant", "what", "why"), rows)


def _shown(view: CampaignView, part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for record in view.starts:
        found: Any = record.proof or {}
        for key in ("evidence", "after_load", part):
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            yield record.start.variant, found


def _compared(view: CampaignView, part: str, row: Any) -> Iterator[tuple[str, ...]]:
    for _, shown in _shown(view, part):
        for pair in _mappings(shown.get("against")):
            yield (str(pair.get("variant", "")), str(pair.get("control", "")), *row(pair))


def _outputs_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = ("relative", "worst_head"), ("control_relative", "control_worst_head"), ("limit", "limit_head")
    return "attention: of the norm, worst head", *(" / ".join(_figure(pair.get(k), 5) for k in two) for two in kinds)


def _answers_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (_figure(pair.get("max_nats"), 5), _figure(pair.get("control_max_nats"), 5))
    what = f"log probabilities at {_figure(pair.get('places'), 0)} places: nats"
    return what, *figures, "alarm" if pair.get("alarm") is True else "alarm only"


def _launch_rows(variant: str, shown: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for launch in _mappings(shown.get("launches")):
        facts = (_figure(launch.get(k), 0) for k in LAUNCH)
        timed = (_figure(launch.get(k), 2) for k in STEP)
        head = (variant, _figure(shown.get("requests"), 0), str(launch.get("config", "")))
        axes = (_axes(launch.get("grid")), _axes(launch.get("block")))
        yield (*head, *axes, *facts, *timed, _figure(shown.get("share_of_gpu_time"), 3))


def _timed(shown: Mapping[str, Any]) -> bool:
    return all(
        isinstance(shown.get(k), int | float) and shown[k] > 0 for k in ("requests", "us_per_step", "gpu_us_per_step")
    )


def _simultaneous(level: Level) -> str:
    return interval(*level.simultaneous) if level.simultaneous else "-"


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list) else []


def _figure(value: Any, digits: int) -> str:
    return number(float(value), digits) if isinstance(value, int | float) else "-"


def _axes(values: Any) -> str:
    return "x".join(map(str, values)) if isinstance(values, list) else "-"
