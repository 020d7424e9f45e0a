"""Benchmark of the decode kernel beside its peers: python -m kernels.bench, rows to a CSV as they come."""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import triton

from kernels.bench_providers import Provider, flashmla, variant_file
from kernels.bench_timing import bytes_read, read_bandwidth, replay_us, set_count
from kernels.cases import Case, Inputs, timed_inputs
from kernels.reference import attend

POOL = 262_144
BASE = Case(batch=1, heads=16, topk=512, extra_page=64, pool=POOL, lengths="full")
CAMPAIGN = (1, 8, 48, 64, 80, 96)
SWEEP = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 448, 512)
# The campaign's shapes come first: rows are kept when the time runs out.
PLAN: tuple[Case, ...] = (
    *(replace(BASE, batch=batch) for batch in (*CAMPAIGN, 512)),
    *(replace(BASE, batch=96, heads=heads) for heads in (8, 32, 64)),
    *(replace(BASE, batch=batch, topk=128, extra=512) for batch in (*CAMPAIGN, 512)),
    replace(BASE, batch=96, topk=640),
    *(replace(BASE, batch=batch, topk=2048) for batch in (1, 96)),
    *(replace(BASE, batch=96, topk=2048, lengths=lengths) for lengths in ("short", "straggler")),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One timed shape. read_share: bytes that must be read over the time, as a share of the measured read bandwidth."""

    provider: str
    batch: int
    heads: int
    topk: int
    extra: int
    lengths: str
    median_us: float
    low_us: float
    high_us: float
    megabytes: float
    read_share: float
    error: float


def conditions(command: list[str], read_bytes_per_s: float) -> dict[str, str | float]:
    """Under what a file of rows was measured."""
    device = torch.cuda.get_device_properties(0)
    return {
        "device": device.name,
        "multiprocessors": device.multi_processor_count,
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "read_tb_per_s": round(read_bytes_per_s / 1e12, 3),
        "method": "CUDA graph over input sets in turn, 130 MB in all (192 sets at most), cold L2; median of 9",
    }


def input_sets(case: Case, provider: Provider) -> list[Inputs]:
    """Enough input sets to outgrow the cache; heads are padded here, before any clock starts."""
    count = 4 if provider.slow else set_count(case.batch, case.topk + case.extra)
    padded = replace(case, heads=-(-case.heads // provider.heads) * provider.heads)
    return timed_inputs(padded, count, "cuda")


def measure(case: Case, provider: Provider, sets: list[Inputs], read_bytes_per_s: float) -> Row:
    """Check one provider on two rows of a case against float64, then time it."""
    error = check(provider, sets[0])
    timing = replay_us(provider.call, sets, replays=3 if provider.slow else 9)
    needed = bytes_read(case.batch, case.heads, _live_tokens(sets[0], case))
    share = needed / (timing.median_us * 1e-6) / read_bytes_per_s
    return Row(
        provider.name,
        case.batch,
        case.heads,
        case.topk,
        case.extra,
        case.lengths,
        round(timing.median_us, 2),
        round(timing.low_us, 2),
        round(timing.high_us, 2),
        round(needed / 1e6, 3),
        round(share, 4),
        float(f"{error:.3g}"),
    )


def check(provider: Provider, inputs: Inputs, rows: int = 2) -> float:
    """Relative error (norm) of the first rows against float64."""
    out, _ = provider.call(inputs)
    batched = {"q", "indices", "topk_length", "extra_indices", "extra_topk_length"}
    few = {n: x[:rows] if n in batched and x is not None else x for n, x in inputs.arguments().items()}
    expected, _ = attend(**few)
    return float((out[:rows].double() - expected).norm() / expected.norm())


class Writer:
    """Rows to a CSV file, each on disk as it comes, with the conditions in a JSON file beside it."""

    def __init__(self, path: Path, facts: dict[str, str | float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
        path.write_text(",".join(Row.__slots__) + "\n")
        self._path = path

    def write(self, row: Row) -> None:
        """Append one row and print it."""
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, [*Row.__slots__]).writerow(asdict(row))
        print(*asdict(row).values(), flush=True)


def main(argv: list[str] | None = None) -> None:
    """Time what the command line names."""
    options = _parser().parse_args(argv)
    stop_at = time.monotonic() + options.seconds
    bandwidth = read_bandwidth()
    writer = Writer(options.out, conditions(["python", "-m", "kernels.bench", *(argv or sys.argv[1:])], bandwidth))
    cases = [replace(BASE, batch=batch) for batch in SWEEP] if options.sweep else PLAN
    variants = [(name, Path(path)) for name, path in (text.split("=", 1) for text in options.variant)]
    with get_context("spawn").Pool(options.workers) as pool:
        jobs = [(name, path, case) for name, path in variants for case in cases]
        for message in filter(None, pool.imap_unordered(compile_case, jobs)):
            print(message, flush=True)
    providers: list[Callable[[], Provider]] = [partial(variant_file, name, path) for name, path in variants]
    if options.flashmla:
        providers.insert(0, flashmla(options.flashmla))
    for case in cases:
        for make in providers:
            if time.monotonic() < stop_at:
                provider = make()
                writer.write(measure(case, provider, input_sets(case, provider), bandwidth))


def compile_case(job: tuple[str, Path, Case]) -> str:
    """Run one variant once, on a small pool, so that its code is in Triton's cache; a message where that fails."""
    name, path, case = job
    try:
        variant_file(name, path).call(timed_inputs(replace(case, pool=4096), 1, "cuda")[0])
    except Exception as error:  # the measurement that follows raises it again, in its place
        return f"{name} {case}: {error}"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="CSV file; conditions go beside it as .json")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=FILE", help="a patched kernel file")
    parser.add_argument("--flashmla", type=Path, help="sglang-kernel's flashmla_ops library")
    parser.add_argument("--sweep", action="store_true", help="batches 1..512 instead of the plan")
    parser.add_argument("--workers", type=int, default=14, help="processes that compile")
    parser.add_argument("--seconds", type=float, default=540.0, help="start no measurement after this time")
    return parser


def _live_tokens(inputs: Inputs, case: Case) -> int:
    total = 0
    for length, most in ((inputs.topk_length, case.topk), (inputs.extra_topk_length, case.extra)):
        total += case.batch * most if length is None else int(length.sum())
    return total


def _driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+\.\d+", path.read_text()) if path.is_file() else None
    return found.group() if found else "unknown"


if __name__ == "__main__":
    main()
