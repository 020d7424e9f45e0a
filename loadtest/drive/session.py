"""Ties a driver to each Locust run: begins at the shape's first tick, writes the record when the run stops."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locust.runners import MasterRunner, WorkerRunner

from app.errors import LabError
from loadtest.cells import write_cells
from loadtest.client.carrier import Carrier
from loadtest.client.recorder import Sent
from loadtest.client.rows import read_load, read_rows
from loadtest.drive.distributed import Carriers, Worker
from loadtest.drive.driver import Driver
from loadtest.drive.feed import feed_locust, look_at
from loadtest.drive.live import Live
from loadtest.drive.reach import Patience
from loadtest.order import StartOrder
from loadtest.plan import Plan, Start

# Users finish their request before they stop; a killed user would leave a request in flight beside the next level's.
STOP_TIMEOUT_S = 3600.0
TICK_S = 0.95
# Above it Locust only warns; at most this many users start in the first second.
MAX_SPAWN_RATE = 100
LAG_SPAN_NS = 5 * 10**9
INTERVALS_EVERY_S = 5.0

log = logging.getLogger(__name__)


class Session:
    """The driver of the present run, the figures of the last, and the events that feed Locust's own table."""

    def __init__(self, environment: Any, make_order: Callable[[], StartOrder]) -> None:
        self._environment, self._make_order = environment, make_order
        self.driver: Driver | None = None
        self._carrier: Carrier | None = None
        self._patience: Patience | None = None
        self._level = 0
        runner = environment.runner
        self._worker = Worker(runner) if isinstance(runner, WorkerRunner) else None
        self.last_folder: Path | None = None
        self.error = ""
        self._shown: tuple[Driver, Live, Carrier | None] | None = None
        self._intervals: tuple[float, list[dict[str, Any]]] = (0.0, [])
        if environment.web_ui is not None:
            # Statistics take a second to load: now, and not when a page first looks at a run under load.
            importlib.import_module("loadtest.drive.sofar")
        environment.stop_timeout = environment.stop_timeout or STOP_TIMEOUT_S
        environment.events.test_stopping.add_listener(lambda **_: self._stop())
        environment.events.test_stop.add_listener(lambda **_: self._finish())

    def tick(self) -> tuple[int, float] | None:
        """Users and spawn rate for Locust's shape; None when the start is over."""
        if self.driver is None and not self._begin():
            return None
        driver = self.driver
        if driver is None:
            return None
        runner = self._environment.runner
        concurrency = self._level = driver.wait_for_change(self._level, TICK_S)
        if driver.done or self._gives_up(driver):
            return None
        # Nobody is ever sent away: slots alone admit, and Locust would count a user on its way out for the next level.
        users = max(concurrency, runner.target_user_count)
        if self._carrier is None and concurrency:
            # Every worker gets as many users as the largest share of slots: users only carry what slots allow.
            users = max(users, -(-concurrency // runner.worker_count) * runner.worker_count)
        return users, min(users, MAX_SPAWN_RATE)

    def send_next(self) -> bool:
        """One request of one user; False when the run is over."""
        if self._worker is not None:
            return self._worker.send_next()
        return self._carrier is not None and self._carrier.send_next()

    def view(self) -> dict[str, Any]:
        """What the live page shows of the present run, or of the last one."""
        if self._shown is None:
            return _EMPTY | {"error": self.error}
        driver, live, carrier = self._shown
        order, course, now = driver.order, driver.course, time.monotonic_ns()
        health = None if carrier is None else carrier.client.meter.health(now - LAG_SPAN_NS, now)
        return {
            "variant": order.variant,
            "control": order.control,
            "block": order.block,
            "start": order.start,
            "simulated": driver.simulated,
            "time_scale": order.time_scale,
            "proof": proof_text(driver.identity),
            "phase": course.phase if course else "begin",
            "concurrency": course.concurrency if course else 0,
            "in_flight": driver.seen.in_flight,
            "lag_p99_ms": health and _number(health.loop_lag_p99_ms),
            "cpu_share": health and _number(health.cpu_share),
            "levels": live.levels(course),
            "trace": live.trace(),
            "intervals": self._intervals_of(order),
            "error": self.error,
        }

    def _begin(self) -> bool:
        self.error, self._level, self._patience = "", 0, None
        try:
            order, runner = self._make_order(), self._environment.runner
            live = Live(order)
            if isinstance(runner, MasterRunner):
                self._carrier, driver = None, Driver(order, Carriers(runner, order))
            else:
                self._carrier = carrier = Carrier(order)
                if not (options := self._environment.parsed_options).decode_ab_order:
                    self._patience = Patience(float(options.decode_ab_wait))
                carrier.on_sent = lambda sent: self._show(live, sent)
                driver = Driver(order, carrier)
                driver.on_second = lambda: _tick_live(driver, carrier, live)
            self.driver, self._shown = driver, (driver, live, self._carrier)
            driver.begin()
        except LabError as e:
            self._fail(str(e))
            self.driver = None
        return self.driver is not None

    def _gives_up(self, driver: Driver) -> bool:
        if self._patience is None or self._carrier is None:
            return False
        try:
            self._patience.check(driver.order, self._carrier.in_flight)
        except LabError as e:
            self._fail(str(e))
        return bool(self.error)

    def _show(self, live: Live, sent: Sent) -> None:
        if sent.exchange.error_kind != "cut":
            seen = look_at(sent)
            if self._patience is not None:
                self._patience.saw(seen)
            live.add(sent, seen)
            feed_locust(self._environment, sent, seen)

    def _stop(self) -> None:
        if self.driver is not None:
            self.driver.stop("stopped before its window ended")

    def _finish(self) -> None:
        driver, self.driver, self._carrier = self.driver, None, None
        if driver is None:
            return
        try:
            driver.finish()
            self.last_folder = driver.order.out
            # Who wrote an order reads its rows, and loading statistics for them takes a second.
            if not self._environment.parsed_options.decode_ab_order:
                write_own_cells(driver.order)
            log.info("record written to %s", driver.order.out)
            if not self.error:
                self._environment.process_exit_code = 0
        except LabError as e:
            self._fail(str(e))

    def _fail(self, message: str) -> None:
        self.error = message
        log.error(message)
        self._environment.process_exit_code = 6

    def _intervals_of(self, order: StartOrder) -> list[dict[str, Any]]:
        read_at, found = self._intervals
        if time.monotonic() - read_at > INTERVALS_EVERY_S:
            from loadtest.drive.sofar import intervals_so_far

            found = intervals_so_far(order)
            self._intervals = (time.monotonic(), found)
        return found


def write_own_cells(order: StartOrder) -> None:
    """Writes cells.csv of a run outside any campaign, by the rules of its own order."""
    from loadtest.measure.window import measure

    levels = tuple(sorted(order.concurrencies))
    rules = {"lengths": order.lengths, "window": order.window, "time_scale": order.time_scale}
    plan = Plan(0, {order.variant: order.variant}, levels, blocks=2, **rules)  # type: ignore[arg-type]
    start = Start(order.block, order.start, order.variant, order.concurrencies)
    cells = measure(start, read_rows(order.out), read_load(order.out), plan)
    write_cells(order.out / "cells.csv", cells)
    for cell in cells:
        if cell.reasons:
            log.warning("C=%d is void: %s", cell.concurrency, "; ".join(cell.reasons))


def proof_text(identity: dict[str, Any]) -> str:
    """What the decode server says of itself, in one line."""
    if not identity:
        return "not read"
    digest = str(identity.get("kernel_sha256") or "")[:12]
    parts = [identity.get("variant") or "no variant", identity.get("selector"), identity.get("config"), digest]
    return " ".join(str(part) for part in parts if part)


def _tick_live(driver: Driver, carrier: Carrier, live: Live) -> None:
    if driver.course is not None:
        now = time.monotonic_ns()
        lag = carrier.client.meter.health(now - 10**9, now).loop_lag_max_ms
        live.tick(driver.seen.in_flight, carrier.in_flight, driver.course, 0.0 if lag != lag else lag)


def _number(value: float) -> float | None:
    return None if value != value else round(value, 2)


_UNKNOWN = ("variant", "control", "block", "start", "time_scale", "lag_p99_ms", "cpu_share")
_EMPTY: dict[str, Any] = dict.fromkeys(_UNKNOWN) | {
    **dict.fromkeys(("levels", "trace", "intervals"), ()),
    "phase": "no run",
    "concurrency": 0,
    "in_flight": 0,
    "simulated": False,
    "proof": "not read",
}
