"""The lab itself killed at random instants, resumed each time from the command line, and what must still be there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import psutil

from app.campaign.blocks import finished_cells
from app.campaign.compare import judge_again
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.chaos.record import Tried
from app.chaos.trial import GONE_S, finished, naming, small_plan
from app.environment import ROOT
from app.records import write_json
from app.report.wording import counted
from app.stack.process import die_with_parent, wait_until
from loadtest.plan import Plan

# Fewer would give no interval, and a verdict with little in it to come out otherwise.
BLOCKS = 3
# Of a whole campaign: most sittings begin behind its first block, and one that comes to its end is no kill.
SPREAD = 0.5
# Exit codes of a campaign that came to its verdict.
JUDGED = (0, 7, 8, 9)
LONGEST_S = 600.0
LOOK_S = 0.2
KIND = "lab killed at a random instant, resumed"


class KilledLab:
    """Campaigns below `folder`, each begun on disk and then resumed over and over by `invoke compare --resume`.

    setup: what they run on; environment: the lab's, if not this process's; under_way: whether a sitting has come to
    where kills may begin. sitting_s: what a whole campaign took, over half of which kills are spread; exposed: finished
    blocks that were there to be lost, summed over the kills.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        setup: Setup | None = None,
        environment: Mapping[str, str] | None = None,
        under_way: Callable[[], bool] = lambda: True,
    ) -> None:
        self.folder, self._chance = folder, random.Random(seed)
        self._seed, self._number = seed, 0
        self._setup, self._environment, self._under_way = setup or Setup(), environment, under_way
        self.sitting_s, self.exposed = 0.0, 0
        self.run = self._begin()
        self._finished: dict[int, str] = {}

    def kill(self, after_s: float | None = None) -> Tried:
        """One sitting, ended by SIGKILL at a random instant; a campaign that ends before it gives way to a new one."""
        after_s = self._chance.uniform(0.2, SPREAD * self.sitting_s) if after_s is None else after_s
        with self._sitting() as lab:
            wait_until(lambda: self._under_way() or lab.poll() is not None, LONGEST_S, LOOK_S)
            try:
                lab.wait(after_s)
            except subprocess.TimeoutExpired:
                lab.kill()
        if lab.returncode != -signal.SIGKILL:
            return self._ended(lab.returncode)
        began = time.monotonic()
        gone = wait_until(lambda: not any(naming(self.folder)), GONE_S, 0.02)
        seconds = time.monotonic() - began
        lost = self._check()
        self.exposed += len(self._finished)
        leaked = 0 if gone else len(list(naming(self.folder)))
        return Tried(KIND, 1, int(gone and not lost), lost, leaked, seconds)

    def _ended(self, code: int) -> Tried:
        if code not in JUDGED:
            return Tried(KIND, 1, note=f"a sitting ended by itself with code {code}")
        lost = self._check_end()
        self._give_way()
        return Tried(KIND, lost=lost)

    def time(self) -> Tried:
        """A whole campaign that nobody disturbs, timed on the machine as it is; then another begins."""
        began = time.monotonic()
        lost, _ = self._to_the_end()
        self.sitting_s = time.monotonic() - began
        self._give_way()
        return Tried(KIND, lost=lost)

    def finish(self) -> Tried:
        """A last sitting that nobody disturbs, and what there was to be lost."""
        lost, code = self._to_the_end()
        campaigns = f"{counted(self._number, 'campaign')} of {BLOCKS} blocks, {self.sitting_s:.0f} s undisturbed"
        exposed = f"{counted(self.exposed, 'finished block')} at stake"
        return Tried(KIND, lost=lost, note=f"{campaigns}; {exposed}; the last ended with code {code}")

    def _to_the_end(self) -> tuple[int, int]:
        with self._sitting() as lab:
            code = lab.wait(LONGEST_S)
        return self._check_end() if code in JUDGED else BLOCKS, code

    def _give_way(self) -> None:
        self.run, self._finished = self._begin(), {}

    def _begin(self) -> RunFolder:
        self._number += 1
        run = RunFolder(self.folder / "runs" / f"killed-{self._number}")
        run.keep_plan(small_plan(BLOCKS, self._seed))
        write_json(run.path / "setup.json", asdict(self._setup))
        return run

    def _sitting(self) -> subprocess.Popen[bytes]:
        return self.command("compare", "--resume", self.run.path.name, "--quiet")

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A task of the lab, begun in the folder; what it says goes to lab.log there."""
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *arguments]
        with (self.folder / "lab.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(os.getpid()),
            )

    def _check(self) -> int:
        plan, now = self.run.plan(), finished(self.run)
        lost = sum(now.get(block) != digest for block, digest in self._finished.items())
        self._finished = now
        return lost + half_blocks(self.run, plan) + self._changed_plan()

    def _check_end(self) -> int:
        lost = self._check() + BLOCKS - len(self._finished)
        written = self.run.verdict_file.read_text(encoding="utf-8")
        return lost + sum(judge_again(self.run).text() != written for _ in range(2))

    def _changed_plan(self) -> bool:
        undisturbed = RunFolder(self.folder / "undisturbed")
        undisturbed.keep_plan(small_plan(BLOCKS, self._seed))
        return self.run.plan_file.read_bytes() != undisturbed.plan_file.read_bytes()


def half_blocks(run: RunFolder, plan: Plan) -> int:
    """Blocks of which some cells are counted but not all."""
    cells, full = list(finished_cells(run, plan)), len(plan.starts(0)) * len(plan.concurrencies)
    return sum(sum(c.block == block for c in cells) not in (0, full) for block in range(plan.blocks))


def killed_lab(kills: int, folder: Path, seed: int) -> Iterator[Tried]:
    """So many kills, one by one, then an undisturbed end; seconds: the longest that a child outlived the lab."""
    before = {p.pid for p in psutil.process_iter()}
    lab, killed = KilledLab(folder, seed), 0
    yield lab.time()
    while killed < kills:
        yield (told := lab.kill())
        killed += told.tried
    yield lab.finish()
    yield Tried(KIND, leaked=len([p for p in naming(folder) if p.pid not in before]))
