"""One stretch of GPU time: pairs of variants in order of worth, block by block, each block's rows archived as it ends.

`python -m app.campaign.sitting` runs one; a later sitting, on another machine too, goes on where it stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app import arguments
from app.campaign import compare
from app.campaign.archives import finished_blocks, keep_rows, pack, restore, state_files
from app.campaign.runs import RUNS, RunFolder
from app.campaign.runtimes import setup_of
from app.errors import LabError, UsageError
from app.progress import Progress
from app.records import write_json
from loadtest.plan import Lengths, Plan, WindowRules

# What each pair is worth falls from left to right; the first variant is judged against the second.
PAIRS = (("fast", "pinned"), ("v1", "pinned"), ("v2", "pinned"), ("fast", "upstream"), ("fast", "flashmla"))
# Before the next pair begins; then every pair is filled up in the same order.
FIRST_BLOCKS = 3
FIRST = "000"
Pause = Callable[[], bool]
Ended = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What a sitting measures. prefix: of every campaign's name, for shape and card; server: as --server has it.

    pairs: variants joined by + share the control's starts, all in one block. decode_only: as WindowRules has it.
    seconds: wall time after which no block begins; out: where archives are written; blocks: of each pair in the end.
    """

    prefix: str
    seconds: float
    out: Path
    server: str
    blocks: int = 6
    concurrency: str = "1,8,48,64,80,96"
    lengths: str = "1024,256"
    settle_s: float = 3.0
    window_s: float = 10.0
    decode_only: bool = False
    seed: int = 1
    pairs: tuple[tuple[str, str], ...] = PAIRS

    def name(self, pair: tuple[str, str]) -> str:
        """The campaign's name."""
        return f"{self.prefix}-{pair[0].replace('+', '-')}-{pair[1]}"

    def plan(self, pair: tuple[str, str]) -> Plan:
        """Each block starts each once, the order changing from block to block: starts are what time is short for."""
        return compare.write_plan(
            pair[0].split("+"),
            arguments.numbers(self.concurrency, "concurrency"),
            blocks=self.blocks,
            design="single",
            seed=self.seed,
            lengths=Lengths(*arguments.pair(self.lengths, "lengths")),
            window=WindowRules(self.settle_s, self.window_s, decode_only=self.decode_only),
            against=pair[1],
        )


class Sitting:
    """Measures an order's pairs until its time is over; faults of one pair do not keep the next from its turn."""

    def __init__(
        self,
        order: Order,
        measure: Callable[[Order, tuple[str, str], Pause, Ended], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        runs: Path = RUNS,
    ) -> None:
        self._order, self._measure, self._clock, self._runs = order, measure or measure_pair, clock, runs
        self._began = self._last = clock()
        # By plan, until a block was measured that holds no look at a start and no first compile.
        planned_s = compare.planned_s(order.plan(order.pairs[0]), compare.REAL_START_S)
        self._start_s = planned_s / order.blocks / starts_of(order.pairs[0])
        self._finished: set[Path] = set(finished_blocks(self._folders()))
        self.faults: dict[str, str] = {}

    def run(self) -> dict[str, int]:
        """Finished blocks of each campaign, after this sitting."""
        # An earlier one may have been killed between a block and its archive.
        self._keep()
        for target in (min(FIRST_BLOCKS, self._order.blocks), self._order.blocks):
            for pair in self._order.pairs:
                if self._name_of(pair) not in self.faults and self._count(pair) < target and self._time_for(pair):
                    self._turn(pair, target)
        return {self._name_of(pair): self._count(pair) for pair in self._order.pairs}

    def _turn(self, pair: tuple[str, str], target: int) -> None:
        name = broken = self._name_of(pair)
        self._last = self._clock()

        def block_ended() -> None:
            self._look_at_the_clock(pair)
            self._keep()

        try:
            self._measure(self._order, pair, lambda: self._is_over(pair, target), block_ended)
            broken = ""
        except LabError as fault:
            self.faults[name] = str(fault)
            print(f"{name}: {fault}", flush=True)
        finally:
            self._look_at_the_clock(pair)
            self._keep(broken)

    def _is_over(self, pair: tuple[str, str], target: int) -> bool:
        return self._count(pair) >= target or not self._time_for(pair)

    def _time_for(self, pair: tuple[str, str]) -> bool:
        return self._clock() + self._start_s * starts_of(pair) <= self._began + self._order.seconds

    def _look_at_the_clock(self, pair: tuple[str, str]) -> None:
        for block in sorted(set(finished_blocks(self._folders())) - self._finished):
            if block.name != FIRST:
                self._start_s = max(1.0, self._clock() - self._last) / starts_of(pair)
            self._last = self._clock()
            self._finished.add(block)

    def _keep(self, broken: str = "") -> None:
        """Archives the rows of new blocks, and all that the broken campaign has, then what going on needs."""
        for folder in self._folders():
            keep_rows(folder, self._order.out, folder.name == broken)
        told = {"faults": self.faults, "blocks": sorted(map(str, self._finished))}
        write_json(self._order.out / "sitting.json", told)
        pack(self._order.out / "state.tar.gz", self._runs, list(state_files(self._folders())))

    def _folders(self) -> list[Path]:
        return [self._runs / self._name_of(pair) for pair in self._order.pairs]

    def _count(self, pair: tuple[str, str]) -> int:
        return len(list(finished_blocks([self._runs / self._name_of(pair)])))

    def _name_of(self, pair: tuple[str, str]) -> str:
        return self._order.name(pair)


def starts_of(pair: tuple[str, str]) -> int:
    """How many starts a block of the pair has."""
    return pair[0].count("+") + 2


def measure_pair(order: Order, pair: tuple[str, str], pause: Pause, ended: Ended) -> None:
    """Begins the pair's campaign, or goes on with it."""
    name, plan = order.name(pair), order.plan(pair)
    with Progress(len(plan.starts(0)) * plan.blocks, quiet=True) as progress:
        if RunFolder(RUNS / name).plan_file.is_file():
            compare.resume(name, progress, pause, ended)
        else:
            compare.begin(plan, setup_of("local", "sglang", "", "", order.server), name, progress, pause, ended)


def main(given: list[str] | None = None) -> int:
    """Runs a sitting from the command line; 1 when a pair had a fault. KeyboardInterrupt, when told, goes on."""
    parser = argparse.ArgumentParser(prog="python -m app.campaign.sitting", description=__doc__)
    parser.add_argument("--prefix", required=True, help="of the campaigns' names, such as h200-h64")
    parser.add_argument("--seconds", type=float, required=True, help="after which no block begins")
    parser.add_argument("--out", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--server", default="topology=single", help="settings of the servers, as compare has them")
    parser.add_argument("--state", type=Path, help="state.tar.gz of an earlier sitting")
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--concurrency", default="1,8,48,64,80,96")
    parser.add_argument("--lengths", default="1024,256", help="tokens of each prompt and of each answer")
    parser.add_argument("--settle", dest="settle_s", type=float, default=3.0, help="seconds at each level, not counted")
    parser.add_argument("--window", dest="window_s", type=float, default=10.0, help="seconds measured at each level")
    parser.add_argument("--decode-only", action="store_true", help="windows without a prefill: lengths must allow it")
    parser.add_argument("--pairs", default="", help="such as fast-pinned,v1+v2-pinned; empty: all, in order of worth")
    chosen = vars(parser.parse_args(given))
    state, pairs = chosen.pop("state"), chosen.pop("pairs")
    order = Order(**chosen, pairs=tuple(pair_of(p) for p in pairs.split(",")) if pairs else PAIRS)
    try:
        if state is not None and not all((RUNS / order.name(p)).exists() for p in order.pairs[:1]):
            restore(state)
        sitting = Sitting(order)
        for name, blocks in sitting.run().items():
            print(f"{name}: {blocks} of {order.blocks} blocks")
    except LabError as fault:
        print(f"lab: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"lab: interrupted; what was measured is in {order.out}", file=sys.stderr)
        raise
    return 1 if sitting.faults else 0


def pair_of(text: str) -> tuple[str, str]:
    """Variant and control of "fast-pinned", or variants and their common control of "fast+v1-pinned"."""
    variant, dash, control = text.strip().partition("-")
    if not dash:
        raise UsageError(f"--pairs {text!r}: VARIANT-CONTROL is needed, such as fast-pinned or fast+v1-pinned")
    return variant, control


if __name__ == "__main__":
    # Ended from outside, as where a machine's time is over, it still archives what was measured.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # A shell makes the code of it that `./lab` ends with too; left to Python, it would come with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        # The first process of a container, which no signal ends so.
        raise
