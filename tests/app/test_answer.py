"""What is asked of services, and how long for."""

from __future__ import annotations

import socket
import time

import pytest

from app import answer
from app.errors import NotReadyError


def test_who_takes_no_connection_is_given_up_long_before_who_is_slow_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_CONNECT_S", 0.3)
    began = time.monotonic()
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        # What comes after the one that waits is dropped, as for a container that is gone.
        full.listen(0)
        waiting.connect(full.getsockname())
        with pytest.raises(NotReadyError, match="no answer"):
            answer.get(f"http://127.0.0.1:{full.getsockname()[1]}", 10.0)
    assert time.monotonic() - began < 5
