"""SGLang's answers as bytes: server-sent events and whole bodies, field for field as 0.5.17 writes them."""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

from app.engine.sim.generation import Generation

DONE = b"data: [DONE]\n\n"
WORDS = tuple(
    f" {head}{tail}"
    for head in ("ka", "lo", "mi", "nu", "re", "so", "ta", "ve")
    for tail in ("ban", "dor", "fel", "gim")
)


def word(seed: int, index: int) -> str:
    """Token `index` of the answer whose prompt gave `seed`: greedy, so the same prompt gives the same text."""
    return WORDS[(seed + index * (index + seed % 7)) % len(WORDS)]


def word_seed(prompt_sha256: str) -> int:
    """What `word` needs of a prompt."""
    return int(prompt_sha256[:8], 16)


def words(prompt_sha256: str, count: int, start: int = 0) -> list[str]:
    """Tokens start..start+count of the answer to a prompt."""
    seed = word_seed(prompt_sha256)
    return [word(seed, i) for i in range(start, start + count)]


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> dict[str, Any]:
    """SGLang's usage object; cached tokens show only with --enable-cache-report, as the caller decides."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens} if cached_tokens else None,
        "reasoning_tokens": 0,
    }


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    """SGLang's error object."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {_json(data)}\n\n".encode()


def error_event(message: str, kind: str = "INTERNAL_SERVER_ERROR", code: int = 500) -> bytes:
    """What SGLang sends inside a 200 stream when a running request fails."""
    return event({"error": error_body(message, kind, code)})


class Renderer(Protocol):
    """Renders one request's answer; tokens is how many the answer holds so far."""

    def opening(self) -> bytes:
        """What precedes the first token: the role-only event of a chat, else nothing."""
        ...

    def content(self, text: str, tokens: int, finish: str | None) -> bytes:
        """The event that carries text; on the last one finish is its reason."""
        ...

    def closing(self, tokens: int, cached_tokens: int) -> bytes:
        """What follows the last token: usage if it was asked for, and the terminator."""
        ...

    def whole(self, text: str, tokens: int, finish: str, cached_tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ...


class Completions:
    """/v1/completions."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._head = {
            "id": generation.rid,
            "object": "text_completion",
            "created": int(time.time()),
            "model": generation.model,
        }
        self._prefix = f'data: {_json(self._head)[:-1]},"choices":[{{"index":0,"text":'
        self._counted = generation.continuous_usage
        self._plain: dict[str, bytes] = {}

    def opening(self) -> bytes:
        """Nothing: completions have no role."""
        return b""

    def content(self, text: str, tokens: int, finish: str | None) -> bytes:
        """One event, about 330 bytes with per-event usage, 220 without."""
        if finish is None and not self._counted:
            data = self._plain.get(text)
            if data is None:
                data = self._plain[text] = self._event(text, "null", "null")
            return data
        counts = _json(usage(len(self._generation.prompt), tokens)) if self._counted else "null"
        return self._event(text, "null" if finish is None else f'"{finish}"', counts)

    def closing(self, tokens: int, cached_tokens: int) -> bytes:
        """The choice-less usage event, when asked for, and the terminator."""
        return _closing(self._generation, self._head, tokens, cached_tokens)

    def whole(self, text: str, tokens: int, finish: str, cached_tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        counts = usage(len(self._generation.prompt), tokens, cached_tokens)
        return self._head | {"choices": [choice], "usage": counts, "metadata": {"weight_version": "default"}}

    def _event(self, text: str, reason: str, counts: str) -> bytes:
        choice = f'{_json(text)},"logprobs":null,"finish_reason":{reason},"matched_stop":null'
        return f'{self._prefix}{choice}}}],"usage":{counts}}}\n\n'.encode()


class Chat:
    """/v1/chat/completions."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._head = {
            "id": generation.rid,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": generation.model,
        }

    def opening(self) -> bytes:
        """The role-only event; its content is the empty string."""
        return self._event({"reasoning_content": None, "role": "assistant", "content": ""}, None, None)

    def content(self, text: str, tokens: int, finish: str | None) -> bytes:
        """The text, and after the last of it an event with the reason alone."""
        counts = usage(len(self._generation.prompt), tokens) if self._generation.continuous_usage else None
        data = self._event({"reasoning_content": None, "content": text}, None, counts)
        return data if finish is None else data + self._event({"reasoning_content": None}, finish, None)

    def closing(self, tokens: int, cached_tokens: int) -> bytes:
        """The choice-less usage event, when asked for, and the terminator."""
        return _closing(self._generation, self._head, tokens, cached_tokens)

    def whole(self, text: str, tokens: int, finish: str, cached_tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        counts = usage(len(self._generation.prompt), tokens, cached_tokens)
        return self._head | {"object": "chat.completion", "choices": [choice], "usage": counts}

    def _event(self, delta: dict[str, Any], finish: str | None, counts: dict[str, Any] | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        return event(self._head | {"choices": [choice]} | ({"usage": counts} if counts else {}))


class Native:
    """/generate: every event repeats the text so far, as SGLang's does."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._text = ""

    def opening(self) -> bytes:
        """Nothing."""
        return b""

    def content(self, text: str, tokens: int, finish: str | None) -> bytes:
        """The text so far with its meta_info."""
        self._text += text
        return event(self.whole(self._text, tokens, finish, 0))

    def closing(self, tokens: int, cached_tokens: int) -> bytes:
        """The terminator; usage is in every event."""
        return DONE

    def whole(self, text: str, tokens: int, finish: str | None, cached_tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        meta = {
            "id": self._generation.rid,
            "finish_reason": None if finish is None else {"type": finish, "length": tokens},
            "prompt_tokens": len(self._generation.prompt),
            "weight_version": "default",
            "num_retractions": 0,
            "completion_tokens": tokens,
            "cached_tokens": cached_tokens,
        }
        return {"text": text, "output_ids": [], "meta_info": meta}


def renderer(generation: Generation) -> Renderer:
    """The renderer of the request's endpoint."""
    kinds: dict[str, type[Completions] | type[Chat] | type[Native]]
    kinds = {"completions": Completions, "chat": Chat, "generate": Native}
    return kinds[generation.api](generation)


def _closing(generation: Generation, head: dict[str, Any], tokens: int, cached_tokens: int) -> bytes:
    if not generation.include_usage:
        return DONE
    return event(head | {"choices": [], "usage": usage(len(generation.prompt), tokens, cached_tokens)}) + DONE


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
