"""The work of a block: a seeded list of prompts, the same bytes for every variant, by level, slot and sequence."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from app.errors import UsageError
from loadtest.order import StartOrder, Workload
from loadtest.plan import Lengths


@cache
def words() -> tuple[str, ...]:
    """256 words, so that one random byte draws one; with a leading blank each is one token in common vocabularies.

    A prompt's length in words is meant to be its length in tokens; the server's own count is kept in every row.
    """
    return tuple((Path(__file__).parent / "words.txt").read_text().split())


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request's text, the output length it asks for, and the digest of the text."""

    text: str
    prompt_tokens: int
    output_tokens: int
    sha256: str


class PromptList:
    """Every prompt a block may need; equal arguments give equal bytes in any process and any order of asking."""

    def __init__(self, seed: str, lengths: Lengths, workload: Workload | None = None) -> None:
        self.seed, self.lengths = seed, lengths
        self.workload = workload or Workload()

    @classmethod
    def of(cls, order: StartOrder) -> PromptList:
        """The list an order names."""
        return cls(order.prompt_seed, order.lengths, order.workload)

    def prompt(self, concurrency: int, slot: int, sequence: int) -> Prompt:
        """The prompt of a slot's n-th request at a level; turns of one conversation share their opening."""
        if self.workload.kind == "dataset":
            return self._from_dataset(concurrency, slot, sequence)
        conversation, turn = divmod(sequence, self.workload.turns)
        rng = random.Random(f"{self.seed}/{concurrency}/{slot}/{conversation}")
        text, length = "", 0
        for _ in range(turn + 1):
            factor = self._factor(rng)
            count = _scaled(self.lengths.prompt_tokens, factor)
            text = " ".join([text, *map(words().__getitem__, rng.randbytes(count))]).lstrip()
            length += count
        output = _scaled(self.lengths.output_tokens, self._factor(rng))
        return Prompt(text, length, output, hashlib.sha256(text.encode()).hexdigest())

    def sha256(self, concurrencies: tuple[int, ...], turns: int = 4) -> str:
        """Digest of the list: the first requests of every slot at the given levels, in rising order of level."""
        digest = hashlib.sha256()
        for concurrency in sorted(concurrencies):
            for slot in range(concurrency):
                for sequence in range(turns):
                    prompt = self.prompt(concurrency, slot, sequence)
                    digest.update(f"{prompt.sha256} {prompt.output_tokens}\n".encode())
        return digest.hexdigest()

    def _factor(self, rng: random.Random) -> float:
        spread = self.workload.spread
        if self.workload.kind == "uniform":
            return rng.uniform(1 - spread, 1 + spread)
        if self.workload.kind == "lognormal":
            return math.exp(rng.gauss(-spread * spread / 2, spread))
        return 1.0

    def _from_dataset(self, concurrency: int, slot: int, sequence: int) -> Prompt:
        # Each level reads the shuffled file from its own offset, slots interleaved, so no line repeats before its end.
        at = random.Random(f"{self.seed}/{concurrency}").randrange(len(self._lines)) + sequence * concurrency + slot
        text, output = self._lines[at % len(self._lines)]
        return Prompt(text, 0, output, hashlib.sha256(text.encode()).hexdigest())

    @cached_property
    def _lines(self) -> list[tuple[str, int]]:
        if self.workload.dataset is None:
            raise UsageError("workload 'dataset' needs a dataset file")
        lines = read_dataset(self.workload.dataset)
        random.Random(f"{self.seed}/dataset").shuffle(lines)
        return lines


def read_dataset(path: Path) -> list[tuple[str, int]]:
    """Prompts and output lengths of a JSONL file; UsageError names the line that is neither."""
    try:
        texts = path.read_text().splitlines()
    except OSError as e:
        raise UsageError(f"{path}: no dataset ({e})") from e
    lines = [_line(path, number, text) for number, text in enumerate(texts, start=1) if text.strip()]
    if not lines:
        raise UsageError(f"{path}: the dataset is empty; one JSON object a line is needed")
    return lines


def _line(path: Path, number: int, text: str) -> tuple[str, int]:
    try:
        entry = json.loads(text)
        prompt, output = entry["prompt"], entry["output_tokens"]
    except (ValueError, KeyError, TypeError) as e:
        raise UsageError(f'{path}:{number}: not {{"prompt": text, "output_tokens": count}} ({e!r})') from e
    if not isinstance(prompt, str) or not prompt or not isinstance(output, int) or output < 1:
        raise UsageError(f"{path}:{number}: prompt must be text and output_tokens at least 1")
    return prompt, output


def _scaled(tokens: int, factor: float) -> int:
    return max(1, round(tokens * factor))
