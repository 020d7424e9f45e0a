"""A DeepSeek-V4 model in small, of random weights: its config and tokenizer, written into the cache.

Everything that attention sees is as in the full model; layers, experts and vocabulary are fewer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.kernel.upstream import default_cache
from app.records import write_text
from loadtest.client.prompts import words

# Compress ratios of the layers: two with the sliding window alone, then both compressed kinds in turn.
WINDOWED, COMPRESSED = (0, 0), (4, 128)
LAYERS = 6
VOCABULARY = 16_384
SPECIAL = ("<s>", "</s>", "<unk>")
# As in DeepSeek-V4-Flash: the shape of the kernel's work follows from these.
ATTENTION: Mapping[str, Any] = {
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "sliding_window": 128,
    "index_topk": 512,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "attention_bias": False,
    "attention_dropout": 0.0,
}
POSITIONS: Mapping[str, Any] = {
    "max_position_embeddings": 65_536,
    "rope_theta": 10_000,
    "compress_rope_theta": 160_000,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
}
EXPERTS: Mapping[str, Any] = {
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    # SGLang's dummy loader leaves tables of whole numbers unset, and a hash layer routes by one.
    "num_hash_layers": 0,
}


def model_config(heads: int, layers: int = LAYERS, one_of: int = 1) -> dict[str, Any]:
    """config.json of the model; heads: query heads of all ranks; layers: even, from 4.

    one_of: experts are as narrow as each of so many ranks holds them; attention's part is taken inside SGLang.
    """
    turns = (layers - len(WINDOWED)) // len(COMPRESSED)
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "compress_ratios": [*WINDOWED, *COMPRESSED * turns],
        "hidden_size": 4096,
        "intermediate_size": EXPERTS["moe_intermediate_size"] // one_of,
        "hidden_act": "silu",
        "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-6,
        "initializer_range": 0.02,
        "vocab_size": VOCABULARY,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "use_cache": True,
        "num_nextn_predict_layers": 0,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        **ATTENTION,
        **POSITIONS,
        **EXPERTS,
        "moe_intermediate_size": EXPERTS["moe_intermediate_size"] // one_of,
    }


def vocabulary() -> dict[str, int]:
    """Token of each word: those of the load's prompts, one token a word, then made-up ones."""
    own = [*SPECIAL, *words()]
    return {word: at for at, word in enumerate([*own, *(f"w{n}" for n in range(len(own), VOCABULARY))])}


def tokenizer() -> dict[str, Any]:
    """tokenizer.json: a word is a token, whatever is no word of the vocabulary is <unk>."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary(), "unk_token": SPECIAL[2]},
    }


def write_model(heads: int, layers: int = LAYERS, one_of: int = 1, folder: Path | None = None) -> Path:
    """The model's folder, named by its content; written when the cache lacks it."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "unk_token": SPECIAL[2],
        "model_max_length": POSITIONS["max_position_embeddings"],
    }
    files = {
        "config.json": model_config(heads, layers, one_of),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": settings,
    }
    texts = {name: json.dumps(data, indent=1) + "\n" for name, data in files.items()}
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:12]
    made = (folder or default_cache() / "models") / f"dummy-dsv4-h{heads}-{digest}"
    for name, text in texts.items():
        if not (made / name).is_file() or (made / name).read_text(encoding="utf-8") != text:
            write_text(made / name, text)
    return made


def model_digest(folder: Path) -> str:
    """SHA-256 over the model's config and tokenizer, which a campaign's manifest holds instead of a path."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.json")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()
