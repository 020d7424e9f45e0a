from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.campaign.runtimes import Setup, setup_of
from app.engine.sglang.model import model_config, model_digest, vocabulary, write_model
from app.engine.sglang.served import Served
from app.errors import UsageError
from app.stack.warm import warm
from kernels.geometry import DEEPSEEK_V4_FLASH, read_geometry
from loadtest.client.prompts import PromptList
from loadtest.plan import Lengths


@pytest.mark.parametrize("heads", [16, 64])
def test_the_small_model_keeps_the_geometry_of_attention(tmp_path: Path, heads: int) -> None:
    geometry = read_geometry(write_model(heads, folder=tmp_path), tp=1)
    assert (geometry.local_heads, geometry.head_dim, geometry.nope_dim, geometry.topk) == (heads, 512, 448, 512)
    assert all(model_config(64)[key] == value for key, value in DEEPSEEK_V4_FLASH.items())


def test_every_word_of_a_prompt_is_one_known_token() -> None:
    prompt = PromptList("seed", Lengths(200, 8)).prompt(1, 0, 0)
    tokens = [vocabulary()[word] for word in prompt.text.split()]
    assert len(tokens) == prompt.prompt_tokens == 200
    assert max(tokens) < model_config(64)["vocab_size"] == len(vocabulary())


def test_the_folder_is_named_by_content_and_written_once(tmp_path: Path) -> None:
    first = write_model(64, folder=tmp_path)
    stamp = (first / "tokenizer.json").stat().st_mtime_ns
    assert write_model(64, folder=tmp_path) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == stamp
    assert write_model(16, folder=tmp_path) != first
    assert not list(first.glob("*.safetensors"))


def test_the_digest_follows_the_config(tmp_path: Path) -> None:
    made = write_model(64, folder=tmp_path)
    before = model_digest(made)
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps(config | {"hidden_size": 1}))
    assert model_digest(made) != before


def test_a_deeper_model_has_more_of_both_compressed_kinds() -> None:
    ratios = model_config(64, 10)["compress_ratios"]
    assert ratios == [0, 0, 4, 128, 4, 128, 4, 128, 4, 128]
    assert Served(layers=10).served_name == "dummy-dsv4-h64-l10"


@pytest.mark.parametrize("layers", [2, 7])
def test_a_model_that_lacks_a_kind_of_layer_is_refused(layers: int) -> None:
    with pytest.raises(UsageError, match=f"layers={layers}: dummy-dsv4 has an even number of layers, 4 or more"):
        Served(layers=layers)


def test_one_rank_of_four_has_experts_of_a_quarter_and_all_heads_which_attention_shares() -> None:
    whole, share = model_config(64), model_config(64, one_of=4)
    differing = {key: (whole[key], share[key]) for key in whole if whole[key] != share[key]}
    assert differing == {"intermediate_size": (2048, 512), "moe_intermediate_size": (2048, 512)}
    assert Served(one_of=4).served_name == "dummy-dsv4-h64-1of4"


@pytest.mark.parametrize("wrong", [{"one_of": 3}, {"one_of": 4, "tp": 2}, {"one_of": 4, "release": "0.5.23"}])
def test_a_rank_that_cannot_be_alone_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has to be one of 1, 2, 4, 8, with tp=1 and a release of"):
        Served(**wrong)


@pytest.mark.parametrize(("heads", "one_of"), [(4, 8), (66, 4)])
def test_heads_that_ranks_cannot_share_evenly_are_refused(heads: int, one_of: int) -> None:
    with pytest.raises(UsageError, match=f"heads={heads} cannot be shared among one_of={one_of} ranks"):
        Served(heads=heads, one_of=one_of)


@pytest.mark.parametrize("server", ["layers=10", "heads=16", "heads=16,layers=10", "one_of=4"])
def test_heads_and_layers_beside_a_model_that_has_its_own_are_refused_by_name(server: str) -> None:
    said = rf"{server.replace(',', ', ')}: of dummy-dsv4 alone, and /models/x has its own; leave it out"
    with pytest.raises(UsageError, match=said):
        setup_of("local", "sglang", "", "/models/x", server)
    with pytest.raises(UsageError, match=said):
        warm(f"{server},model=/models/x", Path("out"), Path("warm"))


def test_heads_and_layers_at_their_defaults_stand_beside_any_model() -> None:
    assert setup_of("local", "sglang", "", "/models/x", "heads=64,layers=6").served().model == "/models/x"


def test_a_campaign_that_was_begun_with_heads_beside_such_a_model_is_still_read() -> None:
    assert Setup(engine="sglang", server={"model": "/models/x", "heads": "16"}).served().heads == 16
