"""The experiments' schedules in Triton's interpreter: python -m tests.kernels.interpreted_schedules, as `interpreted`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

# Imported first: it tells Triton to interpret.
from tests.kernels.interpreted import APART, SMALL, TILE, compare, same

# isort: split
import torch

from kernels.cases import Case, make_inputs
from kernels.reference import attend
from kernels.stream_k import Ranges, stream_k
from kernels.two_loops import two_loops

MIXED = replace(SMALL, batch=3, heads=13, extra=36, extra_page=2, lengths="ragged", holes="random", sink="mixed")
RANGES = {"stream": Ranges(), "live": Ranges(live=True), "whole rows": Ranges(whole_rows=True)}
CASES = {
    "mixed": MIXED,
    "nothing": replace(MIXED, lengths="zero"),
    "garbage": replace(MIXED, lengths="short", holes="garbage"),
}
STREAMED = {
    **CASES,
    "one cache": replace(SMALL, batch=5, topk=40),
    "straggler": replace(SMALL, batch=4, topk=80, lengths="straggler"),
    "24 heads": replace(SMALL, batch=2, topk=48, heads=24),
}


def poisoned(case: Case) -> torch.Tensor:
    """Memory for an output that has to be written."""
    return torch.full((case.batch, 1, case.heads, 512), torch.nan)


def findings(schedule: Any, case: Case) -> dict[str, Any]:
    """One schedule twice on one case, workspaces full of NaN, against float64 and against itself."""
    inputs = make_inputs(case).arguments()
    fresh = torch.empty
    torch.empty = lambda *a, **k: fresh(*a, **k).fill_(torch.nan)
    first, second = (list(schedule(inputs, partials=torch.float32, out=poisoned(case))) for _ in range(2))
    torch.empty = fresh
    return same(first, second) | compare(first, attend(**inputs))


def all_findings() -> dict[str, dict[str, Any]]:
    """By schedule, case and how it is cut."""
    found = {}
    for name, ranges in RANGES.items():
        for at, (kind, case) in enumerate(STREAMED.items()):
            workers, choice = (3, 4, 7)[at % 3], (TILE, APART)[at % 2]
            schedule = partial(stream_k, choice=choice, ranges=ranges, workers=workers)
            found[f"{name}, {kind}"] = findings(schedule, case)
    for kind, case in CASES.items():
        for splits, choice in ((1, TILE), (3, TILE), (4, APART)):
            schedule = partial(two_loops, choice=choice, splits=splits)
            found[f"two loops, {kind}, {splits}"] = findings(schedule, case)
    return found


if __name__ == "__main__":
    print(json.dumps(all_findings()))
