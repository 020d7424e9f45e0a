"""What the tasks show: each function does one task's work from its options and prints the outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app import arguments
from app.campaign import compare
from app.campaign.imported import measured_pairs
from app.campaign.runs import RunFolder, new_run, open_run
from app.campaign.runtimes import Setup, setup_of
from app.console import demo
from app.errors import UsageError
from app.kernel.variants import load_variants
from app.lazily import lazily
from app.progress import Progress
from app.records import write_text
from loadtest.plan import Lengths, Plan, WindowRules, check_share

# As in compare: what is refused needs no statistics and no charts.
with lazily("app", "loadtest"):
    from app import report as reports
    from app.campaign import kernel_share, remeasured
    from app.ledger import campaigns as ledger
    from app.report import campaign_view, curves, export, terminal
    from loadtest.importing import runs as imports
    from loadtest.importing import table as import_table
    from loadtest.judge import calibration_report

SCHEMA = 1
OF_IMPORTS = ("--variants", "--delta", "--id")


def show_demo(seed: str, quiet: bool) -> list[str]:
    """Runs the demo and prints its tables, the path of its report and what a full campaign would take.

    Gives "invalid" where the machine let no variant be judged; every other decision is what a demo is to show.
    """
    plan = demo.demo_plan(arguments.integer(seed, "seed"))
    with _progress(plan, quiet) as progress:
        outcome = compare.begin(plan, Setup(demo=True), None, progress)
    _enter(outcome.folder)
    show_campaign_folder(outcome.folder)
    print(compare.full_campaign_note())
    found = decisions(outcome)
    return ["invalid"] if set(found) == {"invalid"} else []


def judge(given: Sequence[str], import_: str, **options: Any) -> list[str]:
    """The decisions on what is measured now by the task's options, or on what another load driver measured.

    given: options that were typed, or stand off their default; UsageError names those that an import cannot heed.
    import_: the folder of the latter, with import.csv; empty to measure.
    """
    if import_:
        if unheeded := [option for option in given if option not in ("--import", *OF_IMPORTS, "--quiet")]:
            raise UsageError(
                f"--import judges what was measured elsewhere and heeds {', '.join(OF_IMPORTS)} alone; leave "
                f"{', '.join(unheeded)} out"
            )
        outcome = judge_imported(import_, options["variants"], options["delta"], options["id"])
    else:
        outcome = compare_from_options(**options)
    return decisions(outcome)


def compare_from_options(
    *,
    variants: str,
    concurrency: str,
    blocks: int,
    design: str,
    runtime: str,
    engine: str,
    time_scale: str,
    lengths: str,
    settle: str,
    window: str,
    decode_only: bool,
    delta: str,
    slo: str,
    seed: str,
    id: str,
    resume: str,
    calibration: str,
    model: str,
    server: str,
    against: str,
    quiet: bool,
) -> compare.Outcome:
    """Runs or resumes a campaign from the task's options and prints its outcome."""
    if resume:
        plan = open_run(resume).plan()
        with _progress(plan, quiet) as progress:
            progress.say(f"{resume} goes on by its own plan of {plan.blocks} blocks; other options are not read")
            outcome = compare.resume(resume, progress)
    else:
        plan = compare.write_plan(
            arguments.names(variants, "variants"),
            arguments.numbers(concurrency, "concurrency"),
            blocks=blocks,
            design=arguments.design(design),
            seed=arguments.integer(seed, "seed"),
            lengths=Lengths(*arguments.pair(lengths, "lengths")),
            window=WindowRules(
                arguments.number(settle, "settle"), arguments.number(window, "window"), decode_only=decode_only
            ),
            time_scale=arguments.number(time_scale, "time-scale"),
            delta=arguments.number(delta, "delta"),
            objectives=arguments.objectives(slo),
            against=against,
        )
        setup = setup_of(runtime, engine, calibration, model, server)
        with _progress(plan, quiet) as progress:
            outcome = compare.begin(plan, setup, id or None, progress)
    _enter(outcome.folder)
    show_campaign_folder(outcome.folder)
    return outcome


def judge_imported(folder: str, variants: str, delta: str, name: str) -> compare.Outcome:
    """Judges what another load driver measured, as import.csv in that folder declares it, and prints the outcome.

    variants: as given, else those that import.csv names together with their controls.
    """
    # What was typed is judged first: a folder of results may take minutes to read.
    run, margin, registry = new_run(name or None), arguments.number(delta, "delta"), load_variants()
    check_share("delta", margin)
    asked = registry.with_controls(arguments.names(variants, "variants")) if variants else None
    controls = asked or measured_pairs(registry, import_table.named_variants(Path(folder)))
    found = imports.import_campaign(Path(folder), controls, delta=margin)
    outcome = compare.keep_imported(
        run, found, {v: compare.variant_record(registry.get(v)) for v in found.plan.variants}
    )
    show_campaign_folder(run)
    return outcome


def decisions(outcome: compare.Outcome) -> list[str]:
    """The decision on every variant."""
    return [v.decision for v in outcome.verdict.variants]


def show_campaign(name: str, slope: str, amdahl: str, from_rows: bool, as_json: bool) -> None:
    """Judges a campaign's cells again, made anew from its rows if so asked, writes its reports anew and prints it."""
    folder = open_run(name)
    if from_rows:
        remeasured.measure_again(folder)
    write_text(folder.verdict_file, compare.judge_again(folder).text())
    checks = kernel_share.check_shares(folder, Path(amdahl)) if amdahl else ()
    question = arguments.numbers(slope, "slope") or None
    if as_json:
        view = reports.write_reports(folder.path, question).view
        found = [asdict(curve) for curve in curves.throughput_curves(view, question)]
        print(json.dumps(export.summary(view) | {"curves": found, "kernel_shares": list(checks)}, indent=1))
        return
    show_campaign_folder(folder, question)
    if checks:
        print(*checks, sep="\n")


def enter_ledger(name: str, as_json: bool) -> None:
    """Writes a campaign's ledger entry, prints it and says in which file it stands."""
    view = campaign_view.read_campaign(open_run(name).path)
    place, entry = ledger.ledger_of(view), ledger.record_campaign(view.folder)
    if as_json:
        record = {"schema": SCHEMA, "campaign": view.name, "simulated": view.simulated, "ledger": str(place)}
        print(json.dumps(record | {"entry": entry, "variants": export.ledger_records(view)}, indent=1))
        return
    print(entry, f"ledger: {place}", sep="\n\n")


def calibrate(campaigns: int) -> None:
    """Measures the verdict's error rates, writes the tables and names promises that do not hold."""
    found = calibration_report.run(arguments.at_least(campaigns, 1, "campaigns"), tell=print)
    calibration_report.write(found)
    print("\n".join(found.broken) or "every promise of docs/statistics.md holds")


def show_campaign_folder(folder: RunFolder, slope: tuple[int, ...] | None = None) -> None:
    """Writes a judged campaign's reports and prints its outcome; slope: concurrencies to ask the slope between."""
    written = reports.write_reports(folder.path, slope)
    terminal.print_campaign(written.view, question=slope)
    print(f"report: {written.html}")


def _enter(folder: RunFolder) -> None:
    ledger.record_campaign(folder.path)


def _progress(plan: Plan, quiet: bool) -> Progress:
    return Progress(len(plan.starts(0)) * plan.blocks, quiet=quiet)
