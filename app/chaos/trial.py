"""One small campaign with faults in it, and what must hold of it afterwards."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from app.campaign import blocks as campaigns
from app.campaign.compare import judge_again, write_plan
from app.campaign.runs import RunFolder
from app.chaos.clock import stepped
from app.chaos.record import Tried
from app.chaos.stage import PYTHON, ChaosEngine, Fault, Fired, Stage
from app.chaos.weather import Proxy
from app.errors import LabError
from app.kernel.placed import PlacedKernel
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from app.progress import Progress
from app.records import owned, read_json
from app.stack import Stack
from app.stack.local import LocalStack
from app.stack.process import wait_until
from loadtest.plan import Lengths, Plan, WindowRules

LEVELS = (1, 4)
TIME_SCALE = 4.0
# Loose where a busy machine would void a block by itself: only faults are to void blocks here.
RULES = WindowRules(0.8, 5.0, 40.0, batch_share=0.1, slope_alpha=1e-9, max_loop_lag_ms=1000.0)
LENGTHS = Lengths(16, 128)
GONE_S = 5.0
STEP_AFTER_S = 4.0
RESUMES = 4


def small_plan(blocks: int, seed: int) -> Plan:
    """Two variants, C = 1 and 4, a second a window."""
    return write_plan(
        ("v1",), LEVELS, blocks=blocks, design="single", seed=seed, lengths=LENGTHS, window=RULES, time_scale=TIME_SCALE
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """What a trial's campaign runs on: each variant's kernel in its place, and the stack that faults are done to."""

    kernels: dict[str, PlacedKernel]
    stack: Stack
    stage: type[Stage] = Stage


def local_scene(plan: Plan, folder: RunFolder, python: tuple[str, ...]) -> Scene:
    """Processes of this machine."""
    kernels = place_kernels(load_variants(), plan.variants, fetch_base(), folder.path / "kernels")
    engine = ChaosEngine(plan.seed, plan.time_scale, python=python)
    return Scene(kernels, LocalStack(engine, folder.path / "logs"))


@dataclass(slots=True)
class Trial:
    """A campaign whose block n + 1 meets fault n; block 0 is left in peace, to be lost if anything can be."""

    folder: RunFolder
    faults: Sequence[Fault]
    seed: int
    weathered: bool = False
    python: tuple[str, ...] = PYTHON
    scene: Callable[[Plan, RunFolder, tuple[str, ...]], Scene] = local_scene
    errors: list[str] = field(default_factory=list)
    _finished: dict[int, str] = field(default_factory=dict)

    def run(self, progress: Progress) -> list[Tried]:
        """Runs it to its end, resuming when a fault ended it, and judges each fault."""
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        plan = small_plan(max(2, len(self.faults) + 1), self.seed)
        scene = self.scene(plan, self.folder, self.python)
        with contextlib.ExitStack() as open_things:
            stage = scene.stage(
                scene.stack,
                {n + 1: fault for n, fault in enumerate(self.faults)},
                self._remember,
                open_things.enter_context(Proxy(0, self.seed)) if self.weathered else None,
            )
            stage.python = self.python
            ended = self._to_the_end(plan, scene.kernels, stage, progress)
        leaked = leftovers(before, self.folder.path)
        lost = self._lost(plan) if ended else plan.blocks
        if not self.faults:
            return [Tried("none", 1, int(ended), lost, leaked)]
        return [self._judge(n + 1, fault, stage, ended, lost, leaked) for n, fault in enumerate(self.faults)]

    def _to_the_end(self, plan: Plan, kernels: dict[str, PlacedKernel], stage: Stage, progress: Progress) -> bool:
        for _ in range(RESUMES):
            try:
                with owned(self.folder.path):
                    campaigns.run(campaigns.Campaign(plan, kernels, self.folder, stage, progress, {}, stage.load))
                return True
            except LabError as e:
                self.errors.append(f"{type(e).__name__}: {e}")
                progress.say(f"the campaign ended ({e}); resuming it")
        return False

    def _remember(self) -> None:
        self._finished |= {n: digest for n, digest in finished(self.folder).items() if n not in self._finished}

    def _lost(self, plan: Plan) -> int:
        now = finished(self.folder)
        changed = sum(now.get(block) != digest for block, digest in self._finished.items())
        cells = list(campaigns.finished_cells(self.folder, plan))
        of_each = [sum(c.block == b for c in cells) for b in range(plan.blocks)]
        half = sum(count != len(plan.starts(0)) * len(plan.concurrencies) for count in of_each)
        unsteady = judge_again(self.folder).text() != judge_again(self.folder).text()
        return changed + half + unsteady

    def _judge(self, block: int, fault: Fault, stage: Stage, ended: bool, lost: int, leaked: int) -> Tried:
        fired = stage.fired.get(block)
        said = [*self._void_reasons(block), *self.errors]
        heard = not fault.must_say or any(word in line for word in fault.must_say for line in said)
        survived = ended and fired is not None and heard
        # What is lost or left over belongs to the campaign, not to one of its faults: it is told once.
        first = block == 1
        return Tried(
            fault.kind,
            tried=1,
            survived=int(survived),
            lost=lost if first else 0,
            leaked=leaked if first else 0,
            seconds=_answered_s(fired),
            note=_note(fired, heard, bool(self._void_reasons(block)), self.errors),
        )

    def _void_reasons(self, block: int) -> list[str]:
        records = sorted(self.folder.path.glob(f"blocks/{block:03d}*/block.json"))
        return [str(reason) for record in records for reason in read_json(record)["void"]]


def undisturbed(folder: RunFolder, seed: int, step_s: float, python: tuple[str, ...], progress: Progress) -> Tried:
    """A campaign whose engines, driver and lab live under a wall clock that jumps: nothing may come of it."""
    kind = f"wall clock jumps by {step_s / 3600:+.0f} h"
    with stepped(step_s, STEP_AFTER_S):
        trial = Trial(folder, (), seed, python=python)
        (told,) = trial.run(progress)
    windows_s = {round(c.window_s, 1) for c in campaigns.finished_cells(folder, folder.plan()) if c.window_s}
    asked_s, longest_s = RULES.window_s, max(windows_s, default=0.0)
    steady = bool(windows_s) and longest_s < asked_s * 1.5 and not trial.errors
    note = f"windows of {min(windows_s, default=0.0):g} to {longest_s:g} s where {asked_s:g} s were asked for"
    return replace(told, kind=kind, tried=1, survived=int(steady and told.sound), note=note)


def finished(folder: RunFolder) -> dict[int, str]:
    """A digest of every block that has its last word: its record, its cells and its rows."""
    return {int(p.parent.name): _digest(p.parent) for p in _settled(folder)}


def leftovers(before: set[int], folder: Path) -> int:
    """Processes that still run, after a grace of five seconds, below this one or with the folder in their command."""

    def left() -> list[psutil.Process]:
        below = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
        return [p for p in {*below, *naming(folder)} if p.is_running()]

    wait_until(lambda: not left(), GONE_S)
    return len(left())


def naming(folder: Path) -> Iterator[psutil.Process]:
    """Processes that work in the folder, or whose command line names it or something in it."""
    path = str(folder.resolve())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and path in " ".join([process.cwd(), *process.cmdline()]):
                yield process


def _settled(folder: RunFolder) -> Iterator[Path]:
    for path in sorted(folder.path.glob("blocks/[0-9][0-9][0-9]/block.json")):
        record = read_json(path)
        if not record["void"] or record["attempt"] >= campaigns.MAX_ATTEMPTS:
            yield path


def _digest(block: Path) -> str:
    files = sorted([block / "block.json", *block.glob("*/cells.csv"), *block.glob("*/rows.parquet")])
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()


def _answered_s(fired: Fired | None) -> float:
    return 0.0 if fired is None or fired.answered_s is None else fired.answered_s


def _note(fired: Fired | None, heard: bool, void: bool, errors: Sequence[str]) -> str:
    if fired is None:
        return "its moment never came"
    if not heard:
        return "no reason names it"
    if void:
        return "block void, done again"
    return "campaign ended, resumed" if errors else "unharmed"
