"""A stage for faults: the local stack and the load driver as a campaign uses them, with a fault at its moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import psutil

from app.campaign.load import run_load
from app.chaos.weather import FAIR, Proxy, Weather
from app.engine import Command, Endpoints, Ports
from app.engine.probe import CANARY_TOKENS, generated_tokens
from app.engine.proof import Proof
from app.engine.sim.engine import SimEngine
from app.errors import NotReadyError
from app.kernel.placed import PlacedKernel
from app.stack import Stack
from app.stack.local import LocalStack
from app.stack.process import wait_until
from app.stack.watch import Watch
from loadtest.cells import Cell
from loadtest.client.rows import ROWS
from loadtest.plan import Plan, Start

Phase = Literal["between", "start", "canary", "warm-up", "measuring", "stopping"]
PHASES: tuple[Phase, ...] = ("start", "canary", "warm-up", "measuring", "stopping", "between")
PYTHON = (sys.executable, "-m")
LOOK_S = 0.005
INSIDE_WINDOW = 0.3


@dataclass(frozen=True, slots=True)
class Fault:
    """Something done once, at a phase of one start (0 or 1 of its block), and undone when the lab has answered.

    must_say: a void reason or the campaign's error must hold one of these; empty where going on unharmed is right too.
    """

    kind: str
    phase: Phase
    act: Callable[[Stage], None]
    undo: Callable[[Stage], None] = lambda stage: None
    must_say: tuple[str, ...] = ()
    start: int = 1


@dataclass(slots=True)
class Fired:
    """A fault that was done: when, and how long the lab took to answer it."""

    fault: Fault
    at_s: float
    answered_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChaosEngine(SimEngine):
    """The simulated engine, under another Python or, where a fault wants it, with other options of a role."""

    python: tuple[str, ...] = PYTHON
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def prefill(self, ports: Ports, kernel: PlacedKernel) -> Command:
        return self._changed("prefill", SimEngine.prefill(self, ports, kernel))

    def decode(self, ports: Ports, kernel: PlacedKernel, label: str) -> Command:
        return self._changed("decode", SimEngine.decode(self, ports, kernel, label))

    def _changed(self, role: str, command: Command) -> Command:
        return Command((*self.python, *command.argv[len(PYTHON) :], *self.extra.get(role, ())), command.env)


@dataclass(slots=True)
class Stage:
    """A stack and a load in one. faults: by block; each is done in that block's first attempt and never again."""

    inner: Stack
    faults: Mapping[int, Fault]
    on_fire: Callable[[], None] = lambda: None
    proxy: Proxy | None = None
    python: tuple[str, ...] = PYTHON
    fired: dict[int, Fired] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    endpoints: Endpoints | None = None
    _place: tuple[int, int] = (0, 0)
    _loading: bool = False

    @property
    def runtime(self) -> str:
        return self.inner.runtime

    @property
    def simulated(self) -> bool:
        return True

    @property
    def engine(self) -> ChaosEngine:
        """The engine, to be changed by faults."""
        if not isinstance(self.inner, LocalStack) or not isinstance(self.inner.engine, ChaosEngine):
            raise NotReadyError("this stage has a plain engine; make it with ChaosEngine")
        return self.inner.engine

    def manifest(self) -> dict[str, str]:
        return self.inner.manifest()

    def up(self, kernel: PlacedKernel, label: str) -> Endpoints:
        return self.switch(kernel, label)

    def switch(self, kernel: PlacedKernel, label: str) -> Endpoints:
        self.calm()
        self._place = _place_of(label)
        if fault := self._due("between"):
            self.fire(fault)
        if fault := self._due("start"):
            threading.Thread(target=self._fire_at_start, args=(fault, self.running("decode"))).start()
        self.endpoints = self._through_proxy(self.inner.switch(kernel, label))
        if fault := self._due("canary"):
            self.fire(fault)
        return self.endpoints

    def proof(self, endpoints: Endpoints) -> Proof:
        return self.inner.proof(endpoints)

    def alive(self) -> Sequence[str]:
        return self.inner.alive()

    def tail(self, service: str, lines: int = 20) -> list[str]:
        return self.inner.tail(service, lines)

    def down(self) -> None:
        self.calm()
        self.inner.down()

    def load(self, order: Path, plan: Plan, start: Start, watch: Watch) -> list[Cell]:
        """The real load, with this start's fault at its moment."""
        fault = self._due("warm-up") or self._due("measuring") or self._due("stopping")
        self._loading = True
        waiting = threading.Thread(target=self._fire_in_load, args=(fault, order, plan)) if fault else None
        if waiting:
            waiting.start()
        try:
            return run_load(order, plan, start, watch, self.python)
        finally:
            self._loading = False
            if waiting:
                waiting.join()
            self.calm()

    def fire(self, fault: Fault) -> None:
        """Does a fault, now."""
        self.on_fire()
        self.fired[self._place[0]] = Fired(fault, time.monotonic())
        fault.act(self)

    def calm(self) -> None:
        """Undoes what was done; called when the lab has answered."""
        for fired in self.fired.values():
            if fired.answered_s is None:
                fired.answered_s = time.monotonic() - fired.at_s
                fired.fault.undo(self)

    def running(self, service: str) -> int | None:
        """Process id of a service; None while it does not run."""
        return self.inner.pid(service) if isinstance(self.inner, LocalStack) else None

    def pid(self, victim: str) -> int:
        """Process id of decode, prefill, router or the load driver; NotReadyError when it does not run."""
        found = self._driver() if victim == "driver" else self.running(victim)
        if found is None:
            raise NotReadyError(f"{victim} does not run; there is nothing to do the fault to")
        return found

    def kill(self, victim: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """Sends a service or the load driver a signal."""
        os.kill(self.pid(victim), sign)

    def set_weather(self, weather: Weather = FAIR) -> None:
        """Changes the weather between load and router."""
        if self.proxy is None:
            raise NotReadyError("this stage has no proxy; weather needs one")
        self.proxy.weather = weather

    def _driver(self) -> int | None:
        children = psutil.Process().children()
        return next((p.pid for p in children if "--decode-ab-order" in p.cmdline()), None)

    def _through_proxy(self, endpoints: Endpoints) -> Endpoints:
        if self.proxy is None:
            return endpoints
        self.proxy.target_port = int(endpoints.router_url.rsplit(":", 1)[1])
        return replace(endpoints, router_url=self.proxy.url)

    def _due(self, phase: Phase) -> Fault | None:
        block, index = self._place
        fault = self.faults.get(block)
        wanted = fault is not None and (fault.phase, fault.start) == (phase, index) and block not in self.fired
        return fault if wanted else None

    def _fire_at_start(self, fault: Fault, before: int | None) -> None:
        if wait_until(lambda: self.running("decode") not in (None, before), 60, LOOK_S):
            self.fire(fault)

    def _fire_in_load(self, fault: Fault, order: Path, plan: Plan) -> None:
        ready = self._written(order.parent) if fault.phase == "stopping" else self._streaming
        if not wait_until(lambda: ready() or not self._loading, 120, LOOK_S) or not self._loading:
            return
        if fault.phase == "measuring":
            rules = plan.window
            time.sleep((rules.settle_s + INSIDE_WINDOW * rules.window_s) / plan.time_scale)
        self.fire(fault)

    def _streaming(self) -> bool:
        try:
            return self.endpoints is not None and generated_tokens(self.endpoints.decode_url) > 2 * CANARY_TOKENS
        except NotReadyError:
            return False

    def _written(self, folder: Path) -> Callable[[], bool]:
        return lambda: any((folder / name).exists() for name in (ROWS, f"{ROWS}.part"))


def _place_of(label: str) -> tuple[int, int]:
    block, start = label.split("/", 1)
    return int(block.removeprefix("block-")), int(start.split("-")[1])
