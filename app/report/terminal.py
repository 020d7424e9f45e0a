"""A campaign on the terminal: a table per concurrency and a verdict per variant; plain text when it is piped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.report import conclusions, slow_blocks
from app.report.campaign_view import CampaignView
from app.report.curves import answers, throughput_curves, unanswered
from app.report.judged import Level
from app.report.predictions import predictions
from app.report.wording import interval, number, signed
from app.terminal import narrow, show

STYLES = {
    "better": "green",
    "worse": "red",
    "equivalent": "cyan",
    "undecided": "yellow",
    "invalid": "magenta",
    "accept": "bold green",
    "reject": "bold red",
}
PLAIN_WIDTH = 110


def print_campaign(view: CampaignView, console: Console | None = None, question: Sequence[int] | None = None) -> None:
    """Prints the campaign; a console that is no terminal gets plain lines of a fixed width.

    question: concurrencies between which the slope of throughput is asked for.
    """
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, no_color=True)
    _print_head(view, console)
    for concurrency in view.plan.concurrencies:
        show(_level_table(view, concurrency), "", console=console)
    console.print(_verdict_table(view), "")
    curves = throughput_curves(view, question)
    for line in filter(None, (*answers(view, curves), unanswered(view, curves) if question else "")):
        console.print(Text(line))
    for part in view.missing:
        console.print(Text(f"missing: {part}", style="yellow"))


def _print_head(view: CampaignView, console: Console) -> None:
    if mark := conclusions.simulated_mark(view):
        console.print(Text(mark, style="bold black on yellow"))
    console.print(Text.assemble("Campaign ", (view.name, "bold"), ". ", conclusions.basis(view)))
    for line in conclusions.warnings(view):
        console.print(Text(f"warning: {line}", style="bold red"))
    for line in conclusions.void_blocks(view):
        console.print(Text(f"void: {line}", style="magenta"))
    for line in conclusions.redone(view):
        console.print(Text(f"set aside and measured again: {line}", style="magenta"))
    for line in slow_blocks.lines(view):
        console.print(Text(f"{line}; it cancels in the effects"))


def _level_table(view: CampaignView, concurrency: int) -> Table:
    table = Table(title=f"C = {concurrency}")
    table.add_column("variant", min_width=8)
    for name, width in (("tok/s", 8), ("effect %", 8), ("interval %", 14)):
        table.add_column(name, justify="right", min_width=width)
    table.add_column("outcome", min_width=10)
    for name in ("TPOT ms", "TTFT ms"):
        table.add_column(name, justify="right")
    for variant in view.variants:
        table.add_row(*_row(view, variant, concurrency))
    return table


def _row(view: CampaignView, variant: str, concurrency: int) -> list[Text]:
    measured, judged = view.measured.get((variant, concurrency)), view.judged_variant(variant)
    level = judged.level(concurrency) if judged else None
    rate, tpot, ttft = (
        (measured.tokens_per_s, measured.tpot_p50_ms, measured.ttft_p50_ms) if measured else (None, None, None)
    )
    return [
        Text(_contest(view, variant)),
        Text(number(rate, 1)),
        *_effect(level, variant in view.plan.controls),
        Text(number(tpot)),
        Text(number(ttft, 1)),
    ]


def _contest(view: CampaignView, variant: str) -> str:
    """A variant, and beside several controls the one whose difference the row's effect is."""
    control = view.plan.controls.get(variant)
    return f"{variant} vs {control}" if control and len(set(view.plan.controls.values())) > 1 else variant


def _effect(level: Level | None, judged: bool) -> list[Text]:
    if level is None:
        return [Text(""), Text(""), Text("not judged" if judged else "control")]
    found = interval(*level.simultaneous) if level.simultaneous else interval(None, None)
    return [Text(signed(level.effect_pct)), Text(found), Text(level.outcome, STYLES.get(level.outcome, ""))]


def _verdict_table(view: CampaignView) -> Table:
    table = narrow(Table("variant", "against", "decision", "why", title="Verdict"))
    for judged in view.judged:
        facts = [judged.reason, conclusions.found(judged), *conclusions.undecided(judged), *conclusions.doubts(judged)]
        why = Text("\n".join(filter(None, facts)))
        for prediction in predictions(view.variant_record(judged.variant), judged):
            why.append(f"\n{conclusions.prediction_sentence(prediction)}", "dim")
        if judged.stamps:
            why.append(f"\nstamps: {', '.join(judged.stamps)}", "yellow")
        decision = Text(judged.decision, STYLES.get(judged.decision, "yellow"))
        table.add_row(Text(judged.variant), Text(judged.control), decision, why)
    return table
