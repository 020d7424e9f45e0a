"""Ties a driver to each Locust run: begins at the shape's first tick, writes the record when the run stops."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from app.errors import LabError
from loadtest.driver import Driver
from loadtest.order import StartOrder
from loadtest.recorder import Sent, fault, glance

# Users finish their request before they stop; a killed user would leave a request in flight beside the next level's.
STOP_TIMEOUT_S = 3600.0
TICK_S = 0.95
# Above it Locust only warns; at most this many users start in the first second.
MAX_SPAWN_RATE = 100

log = logging.getLogger(__name__)


class Session:
    """The driver of the present run, and the events that feed Locust's own table."""

    def __init__(self, environment: Any, make_order: Callable[[], StartOrder]) -> None:
        self._environment, self._make_order = environment, make_order
        self.driver: Driver | None = None
        self.error = ""
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
        concurrency = driver.wait_for_change(runner.target_user_count, TICK_S)
        if driver.done:
            return None
        # While draining nobody is sent away: the users end by themselves.
        users = concurrency or runner.target_user_count
        return users, min(users, MAX_SPAWN_RATE)

    def send_next(self) -> bool:
        """One request of one user; False when the run is over."""
        return self.driver is not None and self.driver.send_next()

    def _begin(self) -> bool:
        try:
            self.driver = Driver(self._make_order())
            self.driver.on_sent = self._feed_locust
            self.driver.begin()
        except LabError as e:
            self._fail(str(e))
            self.driver = None
        return self.driver is not None

    def _stop(self) -> None:
        if self.driver is not None:
            self.driver.stop("stopped before its window ended")

    def _finish(self) -> None:
        driver, self.driver = self.driver, None
        if driver is None:
            return
        try:
            driver.finish()
            log.info("record written to %s", driver.order.out)
            self._environment.process_exit_code = 0
        except LabError as e:
            self._fail(str(e))

    def _fail(self, message: str) -> None:
        self.error = message
        log.error(message)
        self._environment.process_exit_code = 6

    def _feed_locust(self, sent: Sent) -> None:
        feed_locust(self._environment, sent)


def feed_locust(environment: Any, sent: Sent) -> None:
    """One entry a request in Locust's table, in milliseconds to the last token; faults as failures.

    TTFT and TPOT go to rows of their own and not into the total, which counts requests.
    """
    exchange = sent.exchange
    if exchange.error_kind == "cut":
        return
    reply = glance(exchange)
    kind, error = fault(exchange, reply, sent.requested_tokens)
    kind = "" if kind == "tokens_disagree" else kind  # a glance does not see every event
    arrivals = [exchange.stamps[r] for r in reply.reads]
    end = arrivals[-1] if arrivals else exchange.ended_ns
    environment.events.request.fire(
        request_type="stream",
        name=f"E2E C={sent.lease.concurrency}",
        response_time=(end - exchange.sent_ns) / 1e6,
        response_length=exchange.size,
        exception=RuntimeError(f"{kind}: {error}") if kind else None,
        context={},
    )
    if not kind and arrivals:
        _log_part(environment, sent, "TTFT", (arrivals[0] - exchange.sent_ns) / 1e6)
        if rest := sent.requested_tokens - reply.tokens[0]:
            _log_part(environment, sent, "TPOT", (end - arrivals[0]) / 1e6 / rest)


def _log_part(environment: Any, sent: Sent, name: str, value_ms: float) -> None:
    environment.stats.get(f"{name} C={sent.lease.concurrency}", "part").log(value_ms, 0)
