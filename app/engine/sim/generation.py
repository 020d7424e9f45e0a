"""A generation request as the engine sees it, whichever of SGLang's three endpoints it came through."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import UsageError

Api = Literal["completions", "chat", "generate"]
API_OF_PATH: dict[str, Api] = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
    "/generate": "generate",
}
CHAT_TEMPLATE_TOKENS = 4
DEFAULT_MAX_TOKENS = {"completions": 16, "chat": 256, "generate": 128}
SHAPE_MARK = "@shape:"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Where the KV of a request is handed over: the router sends the same to prefill and decode."""

    host: str
    port: int | None
    room: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What is to be generated. prompt: one entry a token (words, or ids as text); max_tokens: the longest answer."""

    api: Api
    rid: str
    model: str
    prompt: tuple[str, ...]
    prompt_sha256: str
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    user: str = ""
    shape: str = ""
    bootstrap: Bootstrap | None = None


def parse_generation(api: Api, body: bytes, headers: dict[str, str], model: str) -> Generation:
    """The request in a JSON body; UsageError says what cannot be served.

    A token of a text prompt is a whitespace-separated word; a chat adds 4 for its template.
    """
    try:
        data = json.loads(body)
    except ValueError as e:
        raise UsageError(f"body is not JSON: {e}") from e
    if not isinstance(data, dict):
        raise UsageError("body must be a JSON object")
    sampling = _mapping(data, "sampling_params") if api == "generate" else data
    options = _mapping(data, "stream_options")
    prompt = _prompt(api, data)
    text = " ".join(prompt)
    max_tokens = _max_tokens(api, sampling)
    return Generation(
        api=api,
        rid=str(data.get("rid") or headers.get("x-request-id") or uuid.uuid4().hex),
        model=str(data.get("model") or model),
        prompt=prompt,
        prompt_sha256=hashlib.sha256(text.encode()).hexdigest(),
        max_tokens=max_tokens,
        min_tokens=min(max_tokens, _integer(sampling, "min_new_tokens" if api == "generate" else "min_tokens", 0)),
        ignore_eos=bool(sampling.get("ignore_eos")),
        stream=bool(data.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        user=str(data.get("user") or ""),
        shape=str(headers.get("x-decode-ab-shape") or data.get("decode_ab_shape") or _marked_shape(prompt)),
        bootstrap=_bootstrap(data),
    )


def _marked_shape(prompt: tuple[str, ...]) -> str:
    first = prompt[0] if prompt else ""
    return first.removeprefix(SHAPE_MARK) if first.startswith(SHAPE_MARK) else ""


def _prompt(api: Api, data: dict[str, Any]) -> tuple[str, ...]:
    if api == "chat":
        messages = data.get("messages")
        if not isinstance(messages, list) or not messages:
            raise UsageError("messages must be a non-empty list")
        contents = " ".join(str(m.get("content") or "") for m in messages if isinstance(m, dict))
        return (*contents.split(), *("<template>",) * CHAT_TEMPLATE_TOKENS)
    names = ("prompt",) if api == "completions" else ("text", "input_ids")
    value = next((data[n] for n in names if data.get(n) is not None), None)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, str):
        return tuple(value.split()) or ("",)
    if isinstance(value, list) and value and all(isinstance(x, int) for x in value):
        return tuple(str(x) for x in value)
    raise UsageError("prompt must be one string or one list of token ids; batches are not simulated")


def _max_tokens(api: Api, sampling: dict[str, Any]) -> int:
    names = {"generate": ("max_new_tokens",), "chat": ("max_completion_tokens", "max_tokens")}.get(api, ("max_tokens",))
    given = next((n for n in names if sampling.get(n) is not None), names[0])
    value = _integer(sampling, given, DEFAULT_MAX_TOKENS[api])
    if value < 1:
        raise UsageError(f"{given} must be at least 1, got {value}")
    if int(sampling.get("n") or 1) != 1:
        raise UsageError(f"n = {sampling['n']}; the simulated engine answers with one choice")
    return value


def _bootstrap(data: dict[str, Any]) -> Bootstrap | None:
    host, room = data.get("bootstrap_host"), data.get("bootstrap_room")
    if host is None or room is None:
        return None
    if isinstance(host, list) or isinstance(room, list):
        raise UsageError("a list of bootstrap rooms belongs to a batch; batches are not simulated")
    port = data.get("bootstrap_port")
    return Bootstrap(str(host), None if port is None else int(port), int(room))


def _integer(data: dict[str, Any], name: str, default: int) -> int:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} must be an integer, got {value!r}")
    return value


def _mapping(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be an object, got {value!r}")
    return value
