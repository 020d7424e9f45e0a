"""Looks after a stack while it is under load: a service that ends, or a router that no longer serves, is a fault."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.engine.probe import answers
from app.errors import printable
from app.stack import Stack
from app.stack.process import COLOUR

LOOK_EVERY_S = 0.5
# A busy router may miss a look or two.
ROUTER_PATIENCE_S = 4.0
ROUTER_ANSWER_S = 2.0
WORDS = 300


class Watch:
    """Called over and over during a load; says in one line what failed, nothing while all is well.

    router_url: empty where there is no router to ask. ready: path of its own word that it serves.
    """

    def __init__(
        self, stack: Stack, router_url: str, clock: Callable[[], float] = time.monotonic, ready: str = "/readiness"
    ) -> None:
        self.router_url = router_url
        self._stack, self._clock, self._ready = stack, clock, ready
        self._looked = self._served = clock()

    def __call__(self) -> str:
        now = self._clock()
        if now - self._looked < LOOK_EVERY_S:
            return ""
        self._looked = now
        return self.ended() or self._unserved(now)

    def ended(self) -> str:
        """What ended though it should run, with its last words."""
        if not (names := self._stack.alive()):
            return ""
        last = printable(COLOUR.sub("", " | ".join(self._stack.tail(names[0], 2))), WORDS) or "no output"
        return f"{', '.join(names)} ended during the load; last words: {last}"

    def _unserved(self, now: float) -> str:
        if not self.router_url:
            return ""
        if answers(f"{self.router_url}{self._ready}", ROUTER_ANSWER_S):
            self._served = self._clock()
        elif now - self._served > ROUTER_PATIENCE_S:
            return f"router did not say it is ready for {now - self._served:.0f} s of the load ({self.router_url})"
        return ""
