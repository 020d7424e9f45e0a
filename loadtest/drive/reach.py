"""Whether a run's servers are there, and answer with more than faults: what will come to nothing is told in seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from app.errors import NotReadyError
from loadtest.client.connection import Exchange
from loadtest.client.streams import address
from loadtest.drive.feed import Look
from loadtest.measure.server import Server
from loadtest.order import StartOrder

RETRY_S = 0.25
# A request that is out for longer may yet be answered: a cold server compiles for minutes.
PENDING_S = 1.0

log = logging.getLogger(__name__)


def await_servers(order: StartOrder, wait_s: float, sleep: Callable[[float], None]) -> None:
    """Waits until every server that the order names has answered; NotReadyError for the first that has not in wait_s.

    Any answer counts, an error too: what a server may refuse is for the requests to find out.
    """
    deadline = time.monotonic() + wait_s
    for option, url in _urls(order).items():
        server = Server(option, url)
        try:
            _await(server, deadline, wait_s, sleep)
        finally:
            server.close()


class Patience:
    """Runs out where requests have met nothing but faults for wait_s, the time that a server may take to be ready."""

    def __init__(self, wait_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_s, self._clock, self._until_s = wait_s, clock, clock() + wait_s
        self._answered, self._faults, self._last = False, 0, ""

    def saw(self, look: Look) -> None:
        """Takes note of an ended request; one with any output ends all doubt."""
        self._answered |= look.first >= 0
        if look.error:
            self._faults, self._last = self._faults + 1, look.error

    def check(self, order: StartOrder, in_flight: Iterable[Exchange]) -> None:
        """NotReadyError once it has run out."""
        now_s = self._clock()
        pending = any(e.sent_ns < (now_s - PENDING_S) * 1e9 for e in in_flight)
        if self._faults and not self._answered and not pending and now_s >= self._until_s:
            raise NotReadyError(
                f"{order.router_url} answered {self._faults} requests with faults and none with text, at last "
                f"{self._last}: mend what it says; one that is still starting is waited for with "
                f"--decode-ab-wait SECONDS, {self._wait_s:g} now"
            )


def _await(server: Server, deadline: float, wait_s: float, sleep: Callable[[float], None]) -> None:
    address(server.url)
    told = False
    while why := server.unanswered():
        if time.monotonic() >= deadline:
            raise NotReadyError(
                f"{server.url} does not answer ({why}): start the server or correct {server.role}; one that is still "
                f"starting is waited for with --decode-ab-wait SECONDS, {wait_s:g} now"
            )
        if not told:
            log.warning("%s does not answer yet (%s); waiting for it for up to %g s", server.url, why, wait_s)
            told = True
        sleep(RETRY_S)


def _urls(order: StartOrder) -> Mapping[str, str]:
    named = {
        "--host": order.router_url,
        "--decode-ab-decode-url": order.decode_url,
        "--decode-ab-prefill-url": order.prefill_url,
    }
    return {option: url for option, url in named.items() if url}
