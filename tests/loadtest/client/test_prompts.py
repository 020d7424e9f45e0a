"""Prompts are exact, distinct, and the same bytes wherever they are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import UsageError
from loadtest.client.prompts import PromptList, words
from loadtest.order import Workload
from loadtest.plan import Lengths


def prompts(seed: str = "1/prompts/0", **changes: object) -> PromptList:
    return PromptList(seed, Lengths(64, 20), Workload(**changes))  # type: ignore[arg-type]


def test_vocabulary_lets_one_byte_draw_one_word() -> None:
    assert len(set(words())) == 256


def test_prompt_has_exactly_the_asked_length() -> None:
    prompt = prompts().prompt(96, 5, 2)
    assert (len(prompt.text.split()), prompt.prompt_tokens, prompt.output_tokens) == (64, 64, 20)


def test_prompts_differ_between_levels_slots_sequences_and_blocks() -> None:
    lists = [prompts(), prompts("1/prompts/1")]
    texts = [p.prompt(c, s, n).text for p in lists for c in (1, 8) for s in range(4) for n in range(4)]
    assert len(set(texts)) == len(texts)


def test_prompt_list_is_the_same_in_another_process() -> None:
    code = "from loadtest.client.prompts import *; print(PromptList('1/prompts/0', Lengths(64, 20)).sha256((1, 8)))"
    argv = [sys.executable, "-c", code]
    other = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert other.stdout.strip() == prompts().sha256((8, 1))


def test_digest_tells_blocks_apart() -> None:
    assert prompts().sha256((4,)) != prompts("1/prompts/1").sha256((4,))


@pytest.mark.parametrize("kind", ["uniform", "lognormal"])
def test_drawn_lengths_keep_their_mean_and_vary(kind: str) -> None:
    drawn = [prompts(kind=kind, spread=0.3).prompt(8, s, n) for s in range(8) for n in range(100)]
    lengths = [p.prompt_tokens for p in drawn]
    assert 58 < sum(lengths) / len(lengths) < 70
    assert len(set(lengths)) > 10
    assert all(len(p.text.split()) == p.prompt_tokens for p in drawn)


def test_turns_of_a_conversation_share_their_opening() -> None:
    chat = prompts(turns=3)
    first, second, other = (chat.prompt(2, 0, n).text for n in (0, 1, 3))
    assert second.startswith(first)
    assert not other.startswith(first)


def test_dataset_is_read_without_repeats_within_a_level(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"prompt": "p{i}", "output_tokens": {i + 1}}}\n' for i in range(12)))
    drawn = [prompts(kind="dataset", dataset=path).prompt(4, s, n).text for s in range(4) for n in range(3)]
    assert sorted(drawn) == sorted(f"p{i}" for i in range(12))


@pytest.mark.parametrize("line", ["{", '{"prompt": "x"}', '{"prompt": "", "output_tokens": 1}', "3"])
def test_dataset_names_the_line_it_cannot_use(tmp_path: Path, line: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"prompt": "ok", "output_tokens": 1}}\n{line}\n')
    with pytest.raises(UsageError, match=r"d\.jsonl:2"):
        prompts(kind="dataset", dataset=path).prompt(1, 0, 0)


def test_empty_or_missing_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        with pytest.raises(UsageError, match="dataset"):
            prompts(kind="dataset", dataset=tmp_path / name).prompt(1, 0, 0)
