"""Experiments (d) and (e) on a GPU, beside FlashMLA, the stock kernel and `fast`: python -m kernels.experiments.

Every contender is held against float64, a second call and a graph's replays first; one that fails is not timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import yaml

from kernels import sparse_mla_decode as ours
from kernels.bench import BASE, SWEEP, Row, Writer, conditions, input_sets, measure
from kernels.bench_providers import Provider, flashmla, our_kernel, variant_file
from kernels.bench_report import read_rows
from kernels.bench_timing import read_bandwidth
from kernels.cases import Case, Inputs, make_inputs, timed_inputs
from kernels.one_loop import one_loop
from kernels.reference import attend
from kernels.sparse_mla_decode import Choice
from kernels.stream_k import Ranges, stream_k
from kernels.tuning import label

Result = tuple[torch.Tensor, torch.Tensor]
BATCHES = (1, 8, 48, 64, 80, 96, 512)
WIDE = Choice(64, 4, 2, 2, 0, "chained")
THREE = Choice(32, 4, 2, 3, 168, "chained")
DEEP = Choice(32, 4, 3, 2, 0, "chained")
SMALL = Choice(32, 4, 1, 1, 0, "chained")
CHOICES = (WIDE, THREE, DEEP, SMALL, WIDE._replace(merge="fused"), DEEP._replace(merge="fused"))
RANGES = {"stream": Ranges(), "snug": Ranges(snug=True), "live": Ranges(live=True), "rows": Ranges(whole_rows=True)}
PLAN: dict[str, tuple[Case, ...]] = {
    "d": tuple(replace(BASE, batch=batch, topk=128, extra=512) for batch in BATCHES),
    "e": (
        *(replace(BASE, batch=batch) for batch in BATCHES),
        *(replace(BASE, batch=96, topk=2048, lengths=lengths) for lengths in ("full", "short", "straggler")),
    ),
    "waves": tuple(replace(BASE, batch=batch) for batch in SWEEP),
}
CHECKED = (
    Case(heads=13, extra=133, topk=200, lengths="ragged", holes="random", sink="mixed"),
    Case(batch=5, topk=513, extra=17, page=64, extra_page=2, holes="lead", sink="normal", lengths="full"),
    Case(batch=96, topk=512, lengths="full", sink="normal", pool=16384),
    Case(batch=96, topk=2048, lengths="straggler", holes="garbage", pool=16384),
    Case(heads=64, topk=128, extra=512, lengths="zero", sink="normal"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a race needs of a device; a test gives one that has none. measure: a checked row of a provider on a case."""

    facts: dict[str, str | float]
    measure: Callable[[Case, Provider], Row]
    faults: Callable[[str, Provider], list[str]]
    compile_all: Callable[[Sequence[tuple[str, Case, str]]], list[str]]


def contenders(experiment: str, case: Case) -> Iterator[Provider]:
    """What an experiment races on a case: the product's kernel and the experiment's under the same launch choices."""
    choices = (WIDE, DEEP) if experiment == "waves" else CHOICES
    for choice in choices:
        yield our_kernel(f"fixed {label(choice)}", choice)
        if experiment == "d":
            yield _provider(f"one loop {label(choice)}", one_loop, choice)
            continue
        for name, ranges in RANGES.items():
            if _worth(experiment, name, case, choice):
                yield _provider(f"{name} {label(choice)}", stream_k, choice, ranges)


def _worth(experiment: str, ranges: str, case: Case, choice: Choice) -> bool:
    if experiment == "waves":
        return ranges == "snug"
    if ranges == "rows":
        # With fewer rows than programs, whole rows leave multiprocessors idle.
        return case.batch > 264
    if ranges == "live":
        # Equal to stream where all rows are full, but for the sum over the lengths: timed once.
        return choice in (WIDE, DEEP) and (case.topk == 2048 or case.batch == 96)
    return True


def _provider(name: str, schedule: Callable[..., Result], *how: Any) -> Provider:
    return Provider(name, lambda inputs: schedule(inputs.arguments(), *how))


def fast(path: Path = Path(__file__).parent / "variants" / "fast.yaml") -> Provider:
    """The product's kernel under the table that the variant `fast` puts into its file."""
    ours.TUNED = yaml.safe_load(path.read_text())["change"]["constants"]["TUNED"]
    return our_kernel("fast")


def checked(experiment: str) -> Iterator[Case]:
    """The cases on which an experiment's contenders are held against float64; one loop for two lists needs two."""
    return (case for case in CHECKED if experiment != "d" or case.extra)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@lru_cache
def _answer(case: Case) -> tuple[Inputs, torch.Tensor, torch.Tensor]:
    inputs = make_inputs(case, "cuda")
    return inputs, *attend(**inputs.arguments())


def faults_of(experiment: str, provider: Provider) -> list[str]:
    """What is wrong with a contender's results on this GPU, a sentence for each case."""
    found = []
    for case in checked(experiment):
        inputs, expected, expected_lse = _answer(case)
        results = [provider.call(inputs), *_replayed(provider, inputs)]
        out, lse = results[0]
        finite = expected_lse.isfinite()
        error = float((out.double() - expected).norm() / expected.norm().clamp(min=1e-30))
        gap = (lse.double() - expected_lse)[finite].abs() / (expected_lse[finite].abs() / 10).clamp(min=1)
        # Not-a-number compares false, so that it is a fault too.
        wrong = [f"error {error:.2g}"] if not error < 4e-3 else []
        wrong += ["LSE off"] if not (gap < 1e-5).all() else []
        wrong += ["LSE of an empty row"] if not torch.equal(lse.double()[~finite], expected_lse[~finite]) else []
        wrong += ["runs differ"] if not all(_same(results[0], other) for other in results[1:]) else []
        found += [f"{provider.name} on {case}: {', '.join(wrong)}"] if wrong else []
    return found


def _same(first: Result, second: Result) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _replayed(provider: Provider, inputs: Inputs, times: int = 3) -> Iterator[Result]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = provider.call(inputs)
    for _ in range(times):
        out.fill_(torch.nan)
        lse.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        yield out.clone(), lse.clone()


def compile_contender(job: tuple[str, Case, str]) -> str:
    """Run one contender once, on a small pool, so that its code is in Triton's cache; a message where that fails."""
    experiment, case, name = job
    try:
        provider = next(p for known in PLAN[experiment] for p in contenders(experiment, known) if p.name == name)
        provider.call(timed_inputs(replace(case, pool=4096), 1, "cuda")[0])
    except Exception as error:  # the check that follows meets it again, in its place
        return f"{name} {case}: {error}"
    return ""


def this_machine(command: list[str], workers: int) -> Machine:
    """The GPU of this machine."""
    bandwidth = read_bandwidth()
    kept: dict[tuple[Case, int, bool], list[Inputs]] = {}

    def timed(case: Case, provider: Provider) -> Row:
        key = (case, provider.heads, provider.slow)
        if key not in kept:
            if not any(case == other for other, _, _ in kept):
                kept.clear()
            kept[key] = input_sets(case, provider)
        return measure(case, provider, kept[key], bandwidth)

    def compiled(jobs: Sequence[tuple[str, Case, str]]) -> list[str]:
        with get_context("spawn").Pool(workers) as pool:
            return [message for message in pool.imap_unordered(compile_contender, jobs) if message]

    return Machine(conditions(command, bandwidth), timed, faults_of, compiled)


def race(experiments: Sequence[str], peers: Sequence[Callable[[], Provider]], machine: Machine, writer: Writer,
         seconds: float) -> list[str]:  # fmt: skip
    """Check every contender, then time those without fault beside the peers; returns the faults.

    Measurements begin in the order of the experiments, none after `seconds`. Slow peers are left out of the waves.
    """
    began = time.monotonic()
    stop_at = began + seconds
    cases = [(experiment, case) for experiment in experiments for case in PLAN[experiment]]
    jobs = [(experiment, case, p.name) for experiment, case in cases for p in contenders(experiment, case)]
    named = {(e, p.name): p for e, case in cases for p in contenders(e, case)}
    # Shapes of the check are others: compiled one after another they would take longer than the race.
    checks = [(e, case, name) for e, name in named for case in checked(e)]
    for message in machine.compile_all([*checks, *jobs]):
        print(message, flush=True)
    _say(f"compiled after {time.monotonic() - began:.0f} s")
    faults = {key: machine.faults(key[0], provider) for key, provider in named.items()}
    _say(f"checked after {time.monotonic() - began:.0f} s")
    for experiment, case in cases:
        beside = [p for p in (make() for make in peers) if experiment != "waves" or not p.slow]
        for provider in [*beside, *contenders(experiment, case)]:
            if not faults.get((experiment, provider.name)) and time.monotonic() < stop_at:
                writer.write(machine.measure(case, provider))
    return [fault for found in faults.values() for fault in found]


def summary(path: Path) -> Iterator[str]:
    """For each shape in a file of rows, the fastest launch choice of every schedule, in microseconds."""
    for shape, found in read_rows(path).items():
        best: dict[str, tuple[float, str]] = {}
        for provider, (median_us, _) in found.items():
            schedule, _, choice = provider.rpartition(" ")
            name, told = (schedule, f" ({choice})") if schedule else (provider, "")
            best[name] = min(best.get(name, (median_us, told)), (median_us, told))
        yield f"| {shape} | " + " | ".join(f"{name} {us:.1f}{told}" for name, (us, told) in best.items()) + " |"


def main(argv: list[str] | None = None, machine: Machine | None = None) -> int:
    """Race what the command line names; 1 where a contender gave wrong results."""
    options = _parser().parse_args(argv)
    command = ["python", "-m", "kernels.experiments", *(sys.argv[1:] if argv is None else argv)]
    peers: list[Callable[[], Provider]] = [fast] if machine is None else []
    if options.flashmla:
        peers.insert(0, flashmla(options.flashmla))
    if options.stock:
        peers.append(partial(variant_file, "stock", options.stock))
    machine = machine or this_machine(command, options.workers)
    faults = race(options.experiments, peers, machine, Writer(options.out, machine.facts), options.seconds)
    print(*summary(options.out), sep="\n")
    for fault in faults:
        print(f"not timed: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file; conditions go beside it as .json")
    parser.add_argument(
        "--experiments", nargs="+", choices=[*PLAN], default=["e", "d", "waves"], help="in the order of their turn"
    )
    parser.add_argument("--flashmla", type=Path, help="sglang-kernel's flashmla_ops library")
    parser.add_argument("--stock", type=Path, help="SGLang's own kernel file")
    parser.add_argument("--workers", type=int, default=14, help="processes that compile")
    parser.add_argument("--seconds", type=float, default=480.0, help="start no measurement after this time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
