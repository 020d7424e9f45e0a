"""Whether a stack really serves: the router's readiness, then a completion that moves decode's own counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.answer import get, post
from app.engine import Endpoints
from app.errors import NotReadyError

GENERATED = "sglang:generation_tokens_total"
CANARY_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Canary:
    """What the canary completion showed."""

    model: str
    text: str
    completion_tokens: int
    decode_tokens_moved: float
    seconds: float


def answers(url: str, timeout_s: float = 30.0) -> bool:
    """Whether a GET of the URL gives 200; a refused connection is a no."""
    try:
        return get(url, timeout_s).status == 200
    except NotReadyError:
        return False


def wait_ready(endpoints: Endpoints, timeout_s: float, check_alive: Callable[[], None]) -> None:
    """Waits for the servers' health, then the router's readiness if there is one; `check_alive` raises for the dead."""
    deadline = time.monotonic() + timeout_s
    waited = [
        ("prefill", f"{endpoints.prefill_url}/health"),
        ("decode", f"{endpoints.decode_url}/health"),
        ("router", f"{endpoints.router_url}{endpoints.router_ready}"),
    ]
    if not endpoints.routed:
        waited = waited[1:2]
    for what, url in waited:
        while not answers(url):
            check_alive()
            if time.monotonic() > deadline:
                raise NotReadyError(f"{what} did not become ready within {timeout_s:.0f} s ({url})")
            time.sleep(0.05)


def send_canary(endpoints: Endpoints, timeout_s: float = 60.0, counter_s: float = 5.0) -> Canary:
    """A real completion through the router; NotReadyError unless model, text and decode's counter agree.

    counter_s: how long decode's counter may take to show the answer.
    """
    before, began = generated_tokens(endpoints.decode_url), time.monotonic()
    answer = _completion(endpoints, timeout_s)
    seconds = time.monotonic() - began
    text, tokens = _said(answer)
    # Before any waiting for the counter, which could not mend it.
    if not text.strip() or tokens != CANARY_TOKENS:
        raise NotReadyError(f"canary: {tokens} of {CANARY_TOKENS} tokens, text {text[:40]!r}")
    moved = _moved_counter(endpoints.decode_url, before, deadline=time.monotonic() + counter_s)
    # An answer repeats the name that was asked for: only the server's own arguments tell what it serves.
    for name in (answer.get("model"), server_info(endpoints.decode_url).get("served_model_name")):
        if name != endpoints.model:
            raise NotReadyError(f"canary: served model is {name!r}, not {endpoints.model!r}")
    if moved < 1:
        raise NotReadyError(f"canary: answered, but decode's {GENERATED} did not move ({endpoints.decode_url}/metrics)")
    return Canary(str(answer["model"]), text, tokens, moved, seconds)


def generated_tokens(url: str) -> float:
    """Sum of decode's generated-token counter; 0 when it has not appeared yet."""
    lines = [line for line in get(f"{url}/metrics").text.splitlines() if line.startswith(GENERATED)]
    try:
        return sum(float(line.rpartition(" ")[2]) for line in lines)
    except ValueError as e:
        raise NotReadyError(f"{url}/metrics gives {GENERATED} no number ({e})") from e


def server_info(url: str) -> dict[str, Any]:
    """The server's own description of itself. Holds keys when one is set: pick fields, never store it whole."""
    return get(f"{url}/server_info").object()


def _said(answer: dict[str, Any]) -> tuple[str, int]:
    try:
        return str(answer["choices"][0]["text"]), int(answer["usage"]["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as e:
        raise NotReadyError(f"canary: the answer is no completion ({e!r}): {str(answer)[:120]}") from e


def _completion(endpoints: Endpoints, timeout_s: float) -> dict[str, Any]:
    body = {
        "model": endpoints.model,
        "prompt": f"canary {time.time_ns()}",
        "max_tokens": CANARY_TOKENS,
        "min_tokens": CANARY_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
    }
    answer = post(f"{endpoints.router_url}/v1/completions", body, timeout_s)
    if answer.status != 200:
        raise NotReadyError(f"canary: HTTP {answer.status} from the router: {answer.text[:200]}")
    return answer.object()


def _moved_counter(url: str, before: float, deadline: float) -> float:
    # SGLang writes its counters a moment after the answer has left.
    while (moved := generated_tokens(url) - before) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    return moved
