"""Log probabilities of each start's answers to the same prompts: a cheap alarm, since a difference has many causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.answer import post
from app.engine import Endpoints
from app.errors import NotReadyError

TOKENS, TOP, SEED = 8, 5, 1
ANSWER_S = 30.0
# In nats. Below it, batches of another composition differ as much.
ALARM = 0.1
ALARM_TIMES = 3.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One greedy answer: its tokens, and at each place the log probabilities of the likeliest ones."""

    tokens: tuple[str, ...]
    likeliest: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """Largest difference in nats over the places whose earlier tokens are all the same; places: how many there were."""

    nats: float
    places: int


def ask(endpoints: Endpoints, prompts: Sequence[str]) -> tuple[Answered, ...]:
    """Greedy answers at a fixed seed, one after the other; NotReadyError where the service tells no probabilities."""
    return tuple(_ask(endpoints, prompt) for prompt in prompts)


def apart(one: Sequence[Answered], other: Sequence[Answered]) -> Apart:
    """How far two starts' answers to the same prompts are from each other."""
    found = [d for a, b in zip(one, other, strict=True) for d in _differences(a, b)]
    return Apart(max(found, default=0.0), len(found))


def compare(variant: str, control: str, answers: Mapping[str, Sequence[Sequence[Answered]]]) -> dict[str, Any]:
    """The numbers of a pair for proof.json. answers: by variant, each asking; a control is asked twice over."""
    first = answers[control][0]
    own = max((apart(run, first) for run in answers[control][1:]), key=lambda found: found.nats)
    between = apart(answers[variant][-1], first)
    return {
        "variant": variant,
        "control": control,
        "max_nats": round(between.nats, 5),
        "places": between.places,
        "control_max_nats": round(own.nats, 5),
        "control_places": own.places,
        "alarm": between.nats > max(ALARM, ALARM_TIMES * own.nats),
    }


def _ask(endpoints: Endpoints, prompt: str) -> Answered:
    body: dict[str, Any] = {"model": endpoints.model, "prompt": prompt, "max_tokens": TOKENS, "min_tokens": TOKENS}
    body |= {"ignore_eos": True, "temperature": 0, "seed": SEED, "logprobs": TOP}
    answer = post(f"{endpoints.router_url}/v1/completions", body, ANSWER_S)
    if answer.status != 200:
        raise NotReadyError(f"{answer.url} answered HTTP {answer.status}: {answer.text[:200]}")
    try:
        told = answer.object()["choices"][0]["logprobs"]
        likeliest = tuple({str(t): float(p) for t, p in place.items()} for place in told["top_logprobs"])
        return Answered(tuple(map(str, told["tokens"])), likeliest)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise NotReadyError(f"{answer.url} told no log probabilities ({e!r})") from e


def _differences(one: Answered, other: Answered) -> list[float]:
    found = []
    for place, (here, there) in enumerate(zip(one.likeliest, other.likeliest, strict=False)):
        if one.tokens[:place] != other.tokens[:place]:
            break
        if both := here.keys() & there.keys():
            found.append(max(abs(here[token] - there[token]) for token in both))
    return found
