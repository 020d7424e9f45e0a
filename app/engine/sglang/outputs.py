"""Attention's outputs of each start on the same inputs, as its own process computes them, held against each other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine import Endpoints
from app.engine.sglang.asking import ask, outcome_in
from app.engine.sglang.kept_busy import kept_busy
from app.engine.sglang.plugin.decode_ab_replay import INPUTS, RECORD, RELEASE, REPLAY
from app.errors import ProofError

# Twice what the outputs of two paths can be apart: each is up to 0.26 % from float64 (kernels/results/h200.csv).
LIMIT = 0.01
# A single head of a single request is noisier, and one that is wrong is hidden in the whole.
LIMIT_HEAD = 0.05
ROWS = 8
# Steps without graphs are slow: enough that the first request still runs when the last one has begun.
TOKENS = 96
Arrays = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """One start's outputs by kind of layer, each float32 [rows, 1, heads, 512], computed twice over."""

    inputs_sha256: str
    attention: str
    first: Arrays
    again: Arrays


@dataclass(frozen=True, slots=True)
class Difference:
    """Norm of the difference over the norm: of the worst kind of layer, and of the worst head of a request."""

    relative: float
    worst_head: float

    @property
    def within(self) -> bool:
        return self.relative <= LIMIT and self.worst_head <= LIMIT_HEAD

    def __str__(self) -> str:
        return f"{self.relative:.2g} of the norm, {self.worst_head:.2g} in the worst head"


def record_inputs(endpoints: Endpoints, prompts: Sequence[str], folder: Path) -> None:
    """Keeps the inputs of one decode step of all prompts in the folder; NotReadyError says why there are none."""
    told = folder / f"{RECORD}.json"
    told.unlink(missing_ok=True)
    ask(endpoints, RECORD, folder, len(prompts))
    try:
        with kept_busy(endpoints, prompts, TOKENS):
            outcome_in(told)
    finally:
        # Whatever became of it, graphs are to be used again.
        ask(endpoints, RELEASE, folder, 1)


def replay(endpoints: Endpoints, folder: Path, pids: Sequence[int]) -> Outputs:
    """The service's outputs on the kept inputs; ProofError when another process than one of `pids` answered.

    Of a rank's own heads, the first ones, as the process tells: nobody uses what comes out for those that fill it up.
    """
    told = folder / f"{REPLAY}.json"
    told.unlink(missing_ok=True)
    ask(endpoints, REPLAY, folder, 1)
    outcome = outcome_in(told)
    file, kept = folder / f"outputs-{outcome['pid']}.npz", _sha256(folder / INPUTS)
    if outcome["pid"] not in pids or outcome["inputs_sha256"] != kept:
        raise ProofError(f"process {outcome['pid']} attended to {outcome['inputs_sha256'][:12]}, not to {kept[:12]}")
    with np.load(file, allow_pickle=False) as held:
        heads = int(outcome["own_heads"])
        turns = {
            turn: {k.removesuffix(f"/{turn}"): held[k][:, :, :heads] for k in held if k.endswith(turn)}
            for turn in _TURNS
        }
    file.unlink()
    return Outputs(kept, str(outcome["attention"]), turns["first"], turns["again"])


def difference(one: Arrays, other: Arrays) -> Difference:
    """Of one from the other; infinite where the kinds or shapes differ or a value is no number."""
    if one.keys() != other.keys() or any(one[k].shape != other[k].shape for k in one):
        return Difference(math.inf, math.inf)
    whole = [_relative(one[k].ravel(), other[k].ravel()) for k in one]
    heads = [_relative(one[k], other[k]) for k in one]
    return Difference(max(float(np.max(w)) for w in whole), max(float(np.max(h)) for h in heads))


def own_difference(runs: Sequence[Outputs]) -> Difference:
    """How far one variant is from itself at most: its own repetition, and its other starts."""
    found = [difference(o.again, runs[0].first) for o in runs] + [difference(o.first, runs[0].first) for o in runs[1:]]
    return Difference(max(d.relative for d in found), max(d.worst_head for d in found))


def compare(variant: str, control: str, runs: Mapping[str, Sequence[Outputs]]) -> dict[str, Any]:
    """The numbers of a pair for proof.json; ProofError beyond the limits, the control's own difference first."""
    own, between = own_difference(runs[control]), difference(runs[variant][-1].first, runs[control][0].first)
    limits = f"the limits are {LIMIT:g} and {LIMIT_HEAD:g}"
    if not own.within:
        raise ProofError(f"{control}'s attention differs from itself on the same inputs by {own}; {limits}")
    if not between.within:
        raise ProofError(
            f"{variant}'s attention differs from {control}'s on the same inputs by {between}; "
            f"{control}'s from itself by {own}; {limits}"
        )
    return {
        "variant": variant,
        "control": control,
        "relative": between.relative,
        "worst_head": between.worst_head,
        "control_relative": own.relative,
        "control_worst_head": own.worst_head,
        "control_starts": len(runs[control]),
        "limit": LIMIT,
        "limit_head": LIMIT_HEAD,
    }


_TURNS = ("first", "again")


def _relative(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Along the last axis."""
    apart = np.linalg.norm(one.astype(np.float64) - other, axis=-1)
    size = np.linalg.norm(other.astype(np.float64), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(apart == 0, 0.0, apart / size)
    return np.where(np.isfinite(found), found, np.inf)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
