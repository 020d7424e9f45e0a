"""Whether a stack really serves: the router's readiness, then a completion that moves decode's own counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from app.errors import NotReadyError
from app.stack import Endpoints

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
        return session().get(url, timeout=timeout_s).status_code == 200
    except requests.RequestException:
        return False


def wait_ready(endpoints: Endpoints, timeout_s: float, check_alive: Callable[[], None]) -> None:
    """Waits for decode's health and then the router's readiness. `check_alive` raises when a service has died.

    The router's /health says 200 with no worker at all, so only /readiness counts.
    """
    deadline = time.monotonic() + timeout_s
    for what, url in (
        ("prefill", f"{endpoints.prefill_url}/health"),
        ("decode", f"{endpoints.decode_url}/health"),
        ("router", f"{endpoints.router_url}/readiness"),
    ):
        while not answers(url):
            check_alive()
            if time.monotonic() > deadline:
                raise NotReadyError(f"{what} did not become ready within {timeout_s:.0f} s ({url})")
            time.sleep(0.05)


def send_canary(endpoints: Endpoints, timeout_s: float = 60.0) -> Canary:
    """A real completion through the router; NotReadyError unless model, text and decode's counter agree."""
    before, began = generated_tokens(endpoints.decode_url), time.monotonic()
    answer = _completion(endpoints, timeout_s)
    seconds = time.monotonic() - began
    text, tokens = _said(answer)
    moved = _moved_counter(endpoints.decode_url, before, deadline=time.monotonic() + 5)
    if answer.get("model") != endpoints.model:
        raise NotReadyError(f"canary: served model is {answer.get('model')!r}, not {endpoints.model!r}")
    if not text.strip() or tokens != CANARY_TOKENS:
        raise NotReadyError(f"canary: {tokens} of {CANARY_TOKENS} tokens, text {text[:40]!r}")
    if moved < 1:
        raise NotReadyError(f"canary: answered, but decode's {GENERATED} did not move ({endpoints.decode_url}/metrics)")
    return Canary(str(answer["model"]), text, tokens, moved, seconds)


def generated_tokens(url: str) -> float:
    """Sum of decode's generated-token counter; 0 when it has not appeared yet."""
    text = _get(f"{url}/metrics").text
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(GENERATED)]
    return sum(float(v) for v in values)


def server_info(url: str) -> dict[str, Any]:
    """The server's own description of itself. Holds keys when one is set: pick fields, never store it whole."""
    return _object(_get(f"{url}/server_info"))


def session() -> requests.Session:
    """A session that takes no proxy from the environment: every service is on this host or a private network."""
    made = requests.Session()
    made.trust_env = False
    return made


def _said(answer: dict[str, Any]) -> tuple[str, int]:
    try:
        return str(answer["choices"][0]["text"]), int(answer["usage"]["completion_tokens"])
    except (KeyError, IndexError, TypeError, ValueError) as e:
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
    try:
        response = session().post(f"{endpoints.router_url}/v1/completions", json=body, timeout=timeout_s)
    except requests.RequestException as e:
        raise NotReadyError(f"canary: no answer from {endpoints.router_url} within {timeout_s:.0f} s ({e})") from e
    if response.status_code != 200:
        raise NotReadyError(f"canary: HTTP {response.status_code} from the router: {response.text[:200]}")
    return _object(response)


def _get(url: str) -> requests.Response:
    try:
        return session().get(url, timeout=30)
    except requests.RequestException as e:
        raise NotReadyError(f"no answer from {url} ({e})") from e


def _object(response: requests.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except requests.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise NotReadyError(f"{response.url} answered what is no JSON object: {response.text[:80]!r}")
    return found


def _moved_counter(url: str, before: float, deadline: float) -> float:
    # SGLang writes its counters a moment after the answer has left.
    while (moved := generated_tokens(url) - before) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    return moved
