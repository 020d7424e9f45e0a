from __future__ import annotations

import json
from typing import Any

import pytest

from app.engine.sim.generation import Api, Bootstrap, Generation, parse_generation
from app.errors import UsageError


def parsed(body: Any, api: Api = "completions", headers: dict[str, str] | None = None) -> Generation:
    return parse_generation(api, json.dumps(body).encode(), headers or {}, "served")


def test_words_are_tokens_and_the_router_s_fields_are_read() -> None:
    generation = parsed(
        {
            "prompt": "one two  three",
            "max_tokens": 9,
            "min_tokens": 4,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": 8998,
            "bootstrap_room": 2**62,
        }
    )
    assert generation.prompt == ("one", "two", "three")
    assert (generation.max_tokens, generation.min_tokens, generation.ignore_eos) == (9, 4, True)
    assert (generation.include_usage, generation.continuous_usage) == (True, False)
    assert generation.bootstrap == Bootstrap("127.0.0.1", 8998, 2**62)


def test_room_without_a_port_leaves_the_port_to_decode() -> None:
    generation = parsed({"prompt": "a", "bootstrap_host": "h", "bootstrap_port": None, "bootstrap_room": 1})
    assert generation.bootstrap == Bootstrap("h", None, 1)


def test_token_ids_are_tokens() -> None:
    assert parsed({"text": None, "input_ids": [5, 6]}, "generate").prompt == ("5", "6")


def test_chat_adds_its_template_and_takes_the_routers_name_for_the_length() -> None:
    body = {"messages": [{"role": "user", "content": "hi there"}], "max_completion_tokens": 7}
    generation = parsed(body, "chat")
    assert (len(generation.prompt), generation.max_tokens) == (6, 7)


def test_generate_reads_sampling_params() -> None:
    generation = parsed({"text": "a", "sampling_params": {"max_new_tokens": 5, "ignore_eos": True}}, "generate")
    assert (generation.max_tokens, generation.ignore_eos) == (5, True)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"prompt": "a"}, {"x-decode-ab-shape": "split"}),
        ({"prompt": "a", "decode_ab_shape": "split"}, {}),
        ({"prompt": "@shape:split b"}, {}),
    ],
)
def test_a_shape_is_chosen_by_header_body_or_prompt(body: Any, headers: dict[str, str]) -> None:
    assert parsed(body, headers=headers).shape == "split"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": ["a", "b"]}, "batches are not simulated"),
        ({"prompt": "a", "n": 2}, "n = 2"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"prompt": "a", "max_tokens": "9"}, "max_tokens must be an integer"),
        ({"prompt": "a", "stream_options": 1}, "stream_options must be an object"),
        ({"prompt": "a", "bootstrap_host": ["h"], "bootstrap_room": [1]}, "batches are not simulated"),
        ({"prompt": None}, "prompt must be one string"),
        ([], "must be a JSON object"),
    ],
)
def test_what_cannot_be_served_is_refused(body: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed(body)


def test_body_that_is_not_json_is_refused() -> None:
    with pytest.raises(UsageError, match="body is not JSON"):
        parse_generation("completions", b"{", {}, "m")
