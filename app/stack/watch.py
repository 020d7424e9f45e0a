"""Looks after a stack while something is asked of it: a service that ends, or a router that no longer serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from app.engine.probe import answers
from app.errors import LabError, NotReadyError, printable
from app.stack import Stack
from app.stack.process import LAST_LINES, last_words, wait_until

LOOK_EVERY_S = 0.5
# A busy router may miss a look or two.
ROUTER_PATIENCE_S = 4.0
ROUTER_ANSWER_S = 2.0
WORDS = 300
# What a question comes to when a service dies may be known before its end is.
KNOWN_S = 1.0
T = TypeVar("T")


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

    def over(self, ask: Callable[[], T], when: str) -> T:
        """The answer to one question, asked beside the watch: NotReadyError, with its name, once a service has ended.

        A container that is gone refuses nothing, so that whoever asks it waits for its whole time.
        """
        answer: Future[T] = Future()
        threading.Thread(target=_settle, args=(answer, ask), daemon=True).start()
        while not wait([answer], LOOK_EVERY_S).done:
            if fault := self.ended(when):
                raise NotReadyError(fault)
        if isinstance(failed := answer.exception(), LabError) and wait_until(lambda: bool(self.ended(when)), KNOWN_S):
            raise NotReadyError(self.ended(when)) from failed
        return answer.result()

    def ended(self, when: str = "during the load") -> str:
        """What ended though it should run, with its last words."""
        if not (names := self._stack.alive()):
            return ""
        words = printable(last_words(self._stack.tail(names[0], LAST_LINES)), WORDS)
        return f"{', '.join(names)} ended {when}; last words: {words}"

    def _unserved(self, now: float) -> str:
        if not self.router_url:
            return ""
        if answers(f"{self.router_url}{self._ready}", ROUTER_ANSWER_S):
            self._served = self._clock()
        elif now - self._served > ROUTER_PATIENCE_S:
            return f"router did not say it is ready for {now - self._served:.0f} s of the load ({self.router_url})"
        return ""


def _settle(answer: Future[T], ask: Callable[[], T]) -> None:
    try:
        answer.set_result(ask())
    except Exception as e:
        answer.set_exception(e)
