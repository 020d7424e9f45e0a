"""Every start and window of real campaigns in one table: `python -m tests.acceptance.starts OUT.csv HOST=BLOCK...`.

HOST is a number for the machine, BLOCK a block's folder that was measured on it, such as 2=runs/NAME/blocks/002. What
the client received is held against the servers' own counter, between the counter's first and last reading in a window.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.records import read_json
from loadtest.cells import Cell, read_cells
from loadtest.client.rows import read_rows
from loadtest.measure.events import Events
from loadtest.measure.server import Sample, sample_from_json

COUNTER = "realtime_tokens_total:decode"


def rows(blocks: Sequence[tuple[str, Path]]) -> Iterator[dict[str, Any]]:
    """One row a window, by campaign, block, start and concurrency."""
    starts = [(folder.parents[2].name, folder, host) for host, block in blocks for folder in block.glob("start-*")]
    for campaign, folder, host in sorted(starts):
        load, told = read_json(folder / "load.json"), read_json(folder / "proof.json")["evidence"]
        samples = [sample_from_json(s) for s in load["server"]["samples"]]
        received = Events.of(read_rows(folder))
        cells = {cell.concurrency: cell for cell in read_cells(folder / "cells.csv")}
        for level in sorted(load["levels"], key=lambda level: int(level["concurrency"])):
            yield {
                "campaign": campaign,
                "block": load["block"],
                "start": load["start"],
                "variant": load["variant"],
                "host": host,
                **_proved(load["variant"], told),
                **_measured(cells[level["concurrency"]]),
                "client_over_server_pct": _agreement(level, samples, received),
                "loop_lag_p99_ms": level["guards"]["loop_lag_p99_ms"],
            }


def _proved(variant: str, told: dict[str, Any]) -> dict[str, Any]:
    # FlashMLA is no kernel of the file: nothing was predicted of it.
    own = variant != "flashmla"
    return {
        "ready_s": told.get("ready_s"),
        "compiled_ahead_s": (told.get("prebuilt") or {}).get("compile_s", ""),
        "code_as_predicted": told["code_as_predicted"] if own else "",
        "compiled_after_start": told["compiled_after_start"] if own else "",
    }


def _measured(cell: Cell) -> dict[str, Any]:
    return {
        "concurrency": cell.concurrency,
        "tokens_per_s": round(cell.tokens_per_s, 2),
        "window_s": round(cell.window_s, 3),
    }


def _agreement(level: dict[str, Any], samples: Sequence[Sample], received: Events) -> float:
    first, *_, last = (
        s
        for s in samples
        if s.role == "decode" and not s.error and level["window_start_ns"] <= s.at_ns <= level["window_end_ns"]
    )
    served = last.values[COUNTER] - first.values[COUNTER]
    return round(100 * (received.credit(first.at_ns, last.at_ns) / served - 1), 3)


def main(out: str, *blocks: str) -> None:
    """Writes the table."""
    pairs = [(host, Path(folder)) for host, _, folder in (block.partition("=") for block in blocks)]
    found = list(rows(pairs))
    with Path(out).open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
