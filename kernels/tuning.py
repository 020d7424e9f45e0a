"""Offline search for the launch choices of the variant `fast`: python -m kernels.tuning, rows to a CSV as they come."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import torch

from kernels.bench import BASE, Writer, conditions, input_sets, measure
from kernels.bench_providers import our_kernel
from kernels.bench_timing import read_bandwidth
from kernels.cases import Case, timed_inputs
from kernels.sparse_mla_decode import BLOCK_H, Choice, sparse_mla_decode, split_count

SHAPES = (
    *(replace(BASE, batch=batch) for batch in (96, 1, 8, 48, 512)),
    *(replace(BASE, batch=96, heads=heads) for heads in (8, 64)),
    replace(BASE, batch=96, topk=128, extra=512),
    *(replace(BASE, batch=batch) for batch in (64, 80)),
)
# BLOCK_T, num_warps, num_stages, most registers (0: the compiler's choice)
TILES = (
    (32, 4, 1, 0),
    (32, 4, 2, 168),
    # Unlike the line above it spills under no Triton, at one CTA a multiprocessor less.
    (32, 4, 2, 0),
    (32, 4, 3, 0),
    (64, 4, 1, 0),
    (64, 4, 2, 0),
    (64, 8, 2, 0),
)
MERGES = ("fused", "early", "chained")


def choices(case: Case, multiprocessors: int) -> Iterator[Choice]:
    """Launch choices worth racing for a shape."""
    pairs = case.batch * -(-case.heads // BLOCK_H)
    for (block_t, warps, stages, registers), merge in product(TILES, MERGES):
        seen = set()
        for per_sm in (1, 2, 3):
            splits = split_count(pairs, case.topk + case.extra, per_sm * multiprocessors)
            if splits not in seen and (merge != "early" or splits > 1):
                seen.add(splits)
                yield Choice(block_t, warps, stages, per_sm, registers, merge)


def label(choice: Choice) -> str:
    """A choice as one word, in the order of its fields."""
    return "/".join(map(str, choice))


def compile_choice(job: tuple[Case, Choice]) -> str:
    """Compile one choice into Triton's cache by running it once, small; a message where that fails."""
    case, choice = job
    small = replace(case, batch=2, pool=4096)
    try:
        inputs = timed_inputs(small, 1, "cuda")[0]
        for splits in (1, 2):
            sparse_mla_decode(**inputs.arguments(), choice=choice, splits=splits)
    except Exception as error:  # a choice that does not compile is a row less, not the end of the search
        return f"{label(choice)}: {error}"
    return ""


def main(argv: list[str] | None = None) -> None:
    """Race the choices on every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file; conditions go beside it as .json")
    parser.add_argument("--seconds", type=float, default=300.0, help="start no measurement after this time")
    parser.add_argument("--workers", type=int, default=14, help="processes that compile")
    options = parser.parse_args(argv)
    stop_at = time.monotonic() + options.seconds
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    jobs = {(case.heads, case.extra, *c[:3], *c[4:]): (case, c) for case in SHAPES for c in choices(case, sms)}
    with get_context("spawn").Pool(options.workers) as pool:
        for message in pool.imap_unordered(compile_choice, jobs.values()):
            if message:
                print(message, flush=True)
    bandwidth = read_bandwidth()
    writer = Writer(options.out, conditions(["python", "-m", "kernels.tuning", *(argv or sys.argv[1:])], bandwidth))
    for case in SHAPES:
        sets = input_sets(case, our_kernel("any"))
        for choice in choices(case, sms):
            if time.monotonic() < stop_at:
                writer.write(measure(case, our_kernel(label(choice), choice), sets, bandwidth))


if __name__ == "__main__":
    main()
