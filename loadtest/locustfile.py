"""Locust's entrance: `locust -f loadtest/locustfile.py [--headless] --host URL [--decode-ab-order ORDER.json]`.

Locust drives users, shape and web page; the truth is in the record that the driver writes beside its table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# `locust -f` puts the file's own folder on the path, not the repository's.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from locust import LoadTestShape, User, events, task
from locust.exception import StopUser

from loadtest.drive.options import add_options, order_from
from loadtest.drive.session import Session
from loadtest.webui import extend


class StreamUser(User):
    """One user of the closed loop: sends when a slot is free, waits for the end of the stream, and again."""

    @task
    def stream(self) -> None:
        if not session_of(self.environment).send_next():
            raise StopUser


class Steps(LoadTestShape):
    """Follows the order's concurrencies; the course itself is the pure function in loadtest.shape."""

    def tick(self) -> tuple[int, float] | None:
        if self.runner is None:
            return None
        return session_of(self.runner.environment).tick()


def session_of(environment: Any) -> Session:
    """The session that `init` gave to this environment."""
    session: Session = environment.decode_ab
    return session


def begin_session(environment: Any, **kwargs: Any) -> None:
    """Gives the environment its session, and the web page, where there is one, its part of the lab."""
    environment.decode_ab = Session(environment, lambda: order_from(environment))
    if environment.web_ui is not None:
        extend(environment.web_ui, environment.decode_ab)


# Locust's event hooks carry no annotations.
_hooks: Any = events
_hooks.init_command_line_parser.add_listener(add_options)
_hooks.init.add_listener(begin_session)
