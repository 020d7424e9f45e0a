"""The experiments' schedules in Triton's interpreter: python -m tests.kernels.interpreted_schedules prints findings."""

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
from kernels.one_loop import one_loop
from kernels.reference import attend
from kernels.stream_k import Ranges, stream_k

MIXED = replace(
    SMALL, batch=3, heads=13, topk=16, extra=20, extra_page=2, lengths="ragged", holes="random", sink="mixed"
)
RANGES = {"stream": Ranges(), "live": Ranges(live=True), "whole rows": Ranges(whole_rows=True)}
STREAMED = {
    "stream": (("mixed", MIXED, 4, TILE), ("24 heads", replace(SMALL, batch=1, topk=48, heads=24), 3, APART)),
    "live": (
        ("straggler", replace(SMALL, batch=3, topk=48, lengths="straggler"), 7, TILE),
        ("mixed", MIXED, 3, APART),
        ("nothing", replace(MIXED, lengths="zero"), 7, TILE),
    ),
    "whole rows": (("garbage", replace(MIXED, lengths="short", holes="garbage"), 2, TILE),),
}
ONE_LOOP = (
    ("mixed", MIXED, 3, TILE),
    ("garbage", replace(MIXED, lengths="short", holes="garbage"), 4, APART),
    ("nothing", replace(MIXED, lengths="zero"), 1, TILE),
)


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
    """By schedule and case."""
    found = {}
    for name, cases in STREAMED.items():
        for kind, case, workers, choice in cases:
            schedule = partial(stream_k, choice=choice, ranges=RANGES[name], workers=workers)
            found[f"{name}, {kind}"] = findings(schedule, case)
    for kind, case, splits, choice in ONE_LOOP:
        found[f"one loop, {kind}"] = findings(partial(one_loop, choice=choice, splits=splits), case)
    return found


if __name__ == "__main__":
    print(json.dumps(all_findings()))
