"""A campaign as GitHub markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.report import conclusions, provenance, slow_blocks
from app.report.after_load import explained_grid
from app.report.campaign_view import CampaignView
from app.report.evidence import Grid
from app.report.judged import Judged
from app.report.predictions import predictions
from app.report.transfer import read_transfers, transfer_grid
from app.report.wording import interval, number, p_value, predicted_range, signed

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"\\{c}" for c in "\\`*[]|"})


def escaped(words: str) -> str:
    """Outside words on one line, with nothing in them that markdown or HTML would act upon."""
    return " ".join(words.split()).translate(_ESCAPES)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], right: Iterable[str] = ()) -> str:
    """A markdown table; columns named in right are set flush right."""
    columns, right = list(columns), set(right)
    rule = ["---:" if c in right else "---" for c in columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, rule, *rows))


def render_markdown(view: CampaignView) -> str:
    """The whole report as markdown: verdict first."""
    return "\n\n".join(filter(None, _parts(view))) + "\n"


def _parts(view: CampaignView) -> Iterator[str]:
    mark = conclusions.simulated_mark(view)
    yield f"> **{mark}**" if mark else ""
    yield f"### {escaped(conclusions.headline(view))}"
    yield f"Campaign `{view.name}`: {conclusions.basis(view)}"
    yield "\n".join(f"- **warning: {escaped(line)}**" for line in conclusions.warnings(view))
    yield "\n".join(f"- void: {escaped(line)}" for line in conclusions.void_blocks(view))
    yield "\n".join(f"- set aside and measured again: {escaped(line)}" for line in conclusions.redone(view))
    for judged in view.judged:
        yield _variant(view, judged)
    yield _grid(explained_grid(view))
    yield _grid(transfer_grid(read_transfers(view)))
    yield _slow_blocks(view)
    yield "\n".join(f"- note: {escaped(note)}" for note in view.verdict.get("notes", ()))
    yield "\n".join(f"- {escaped(line)}" for line in conclusions.error_rates(view))
    yield "<details><summary>What this campaign cannot tell</summary>"
    yield "\n".join(f"- {escaped(limit)}" for limit in provenance.limits(view))
    yield "</details>"


def _variant(view: CampaignView, judged: Judged) -> str:
    name, control = escaped(judged.variant), escaped(judged.control)
    stamps = f" ({escaped(', '.join(judged.stamps))})" if judged.stamps else ""
    lines = [f"#### {name} against {control}: **{judged.decision}**{stamps}", escaped(judged.reason) + "."]
    lines.append(level_table(view, judged))
    notes = (*conclusions.undecided(judged), *conclusions.doubts(judged), conclusions.shape(judged))
    return "\n\n".join([*lines, "\n".join(f"- {escaped(n)}" for n in notes if n)])


def _grid(grid: Grid) -> str:
    if not grid.rows:
        return ""
    return f"{grid.caption}:\n\n{table(grid.columns, [[*map(escaped, row)] for row in grid.rows], grid.numeric)}"


def _slow_blocks(view: CampaignView) -> str:
    told = [f"- {escaped(line)}" for line in slow_blocks.lines(view)]
    return f"{slow_blocks.RULE}:\n\n" + "\n".join(told) if told else ""


def level_table(view: CampaignView, judged: Judged) -> str:
    """A variant's figures by concurrency: what was predicted, what was found."""
    foreseen = {p.concurrency: p for p in predictions(view.variant_record(judged.variant), judged)}
    columns = ("C", f"{escaped(judged.control)} tok/s", f"{escaped(judged.variant)} tok/s", "effect %", "interval %")
    rows = []
    for level in judged.levels:
        rates = [view.measured.get((name, level.concurrency)) for name in (judged.control, judged.variant)]
        guess = foreseen.get(level.concurrency)
        rows.append(
            (
                str(level.concurrency),
                *(number(m.tokens_per_s if m else None, 1) for m in rates),
                signed(level.effect_pct),
                interval(*level.simultaneous) if level.simultaneous else "-",
                level.outcome,
                p_value(level.p_holm),
                f"{predicted_range(*guess.predicted)}: {guess.outcome}" if guess else "",
            )
        )
    return table((*columns, "outcome", "Holm p", "predicted %"), rows, ("C", *columns[1:], "Holm p"))
