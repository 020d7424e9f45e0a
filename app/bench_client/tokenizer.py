"""A tokenizer in which one word is one token, as in the clocked mock, for the clients that insist on one."""

from __future__ import annotations

import json
from pathlib import Path

from loadtest.client.prompts import words

HUB_NAME = "decode-ab/words"
_SPECIAL = ("<unk>", "<s>", "</s>")


def write_tokenizer(folder: Path) -> Path:
    """Writes a folder that Hugging Face's AutoTokenizer reads without a network.

    Beside it `hub` holds the same under HUB_NAME, as in a hub's cache: one client takes no other address offline.
    """
    revision = folder / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    (revision / "refs").mkdir(parents=True, exist_ok=True)
    (revision / "refs" / "main").write_text("0")
    (revision / "snapshots" / "0").mkdir(parents=True, exist_ok=True)
    vocabulary = {word: number for number, word in enumerate((*_SPECIAL, *words()))}
    added = [
        {"id": i, "content": text, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for i, text in enumerate(_SPECIAL)
    ]
    tokenizer = {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "added_tokens": added,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 131072,
        "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
    }
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "config.json": {"model_type": "llama"}}
    for name, content in files.items():
        for place in (folder, revision / "snapshots" / "0"):
            (place / name).write_text(json.dumps(content))
    return folder
