"""The written plan of a campaign: what is compared, in which order, by which rules, fixed before the first start."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from app.errors import InvalidCampaignError, UsageError

SCHEMA = 1
# Beyond what a campaign could be; a slip of the pen there would take memory and time without end.
MAX_BLOCKS = 10_000
MAX_CONCURRENCY = 100_000
# The longest context of the models that SGLang serves; a prompt list beyond it takes memory without end.
MAX_TOKENS = 1 << 20
# Beyond these a window lasts no time, or for ever.
MIN_TIME_SCALE, MAX_TIME_SCALE = 0.01, 1000.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
Design = Literal["mirrored", "single"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Prompt and output length of every request, in tokens; both are exact."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.output_tokens) < 1:
            raise UsageError(
                f"lengths must be at least 1 token each, not {self.prompt_tokens} for the prompt and "
                f"{self.output_tokens} for the answer"
            )
        if max(self.prompt_tokens, self.output_tokens) > MAX_TOKENS:
            raise UsageError(
                f"lengths {self.prompt_tokens},{self.output_tokens} are beyond any context; at most {MAX_TOKENS:,} each"
            )


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When a level counts, in seconds of engine time (wall seconds x time scale).

    settle_s: waited after the last slot is filled. window_s: measured, above 0. fill_timeout_s: limit for filling all
    slots. batch_share: a decode batch under this share of its median voids the block.
    slope_alpha: level of the stationarity test.
    max_loop_lag_ms: p99 of the client's own lag, in wall milliseconds, above which the block is void.
    decode_only: each level begins with fresh requests, whose answers must outlast its window, so that no prefill falls
    into one.
    """

    settle_s: float = 10.0
    window_s: float = 60.0
    fill_timeout_s: float = 300.0
    batch_share: float = 0.95
    slope_alpha: float = 0.01
    max_loop_lag_ms: float = 20.0
    decode_only: bool = False

    def __post_init__(self) -> None:
        waits = {"settle": self.settle_s, "window": self.window_s, "fill timeout": self.fill_timeout_s}
        for name, wait_s in waits.items():
            if not 0 <= wait_s < math.inf:
                raise UsageError(f"{name} {wait_s:g} s is out of range; it is a number of seconds from 0")
        if not self.window_s:
            raise UsageError("a window of 0 s measures nothing; it must be above 0 s, and 60 s is usual")


@dataclass(frozen=True, slots=True)
class Objectives:
    """Service-level objectives of a request: upper limits in engine milliseconds; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def __post_init__(self) -> None:
        limits = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2e": self.e2e_ms}
        if all(limit is None for limit in limits.values()):
            raise UsageError("objectives without a limit; give at least one of ttft, tpot and e2e")
        for name, limit in limits.items():
            if limit is not None and not 0 < limit < math.inf:
                raise UsageError(f"objective {name}={limit:g} is out of range; a limit is a number of ms above 0")


@dataclass(frozen=True, slots=True)
class Start:
    """One life of the decode service: the replicate of every statistic."""

    block: int
    index: int
    variant: str
    concurrencies: tuple[int, ...]

    @property
    def name(self) -> str:
        """Folder name inside the block's folder."""
        return f"start-{self.index:02d}-{self.variant}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided before measuring. Equal plans give equal orders, prompts and rules.

    controls maps each judged variant to its control; delta is the smallest effect of interest (0.01 = 1 %);
    objectives are what a request must keep to count towards goodput; time_scale is simulated seconds per wall second
    (1 on real engines). imported: another load driver measured it; there is no seed and no window then to keep.
    """

    seed: int
    controls: Mapping[str, str]
    concurrencies: tuple[int, ...]
    blocks: int
    design: Design = "mirrored"
    lengths: Lengths = field(default_factory=lambda: Lengths(1024, 256))
    window: WindowRules = field(default_factory=WindowRules)
    delta: float = 0.01
    alpha: float = 0.05
    time_scale: float = 1.0
    objectives: Objectives | None = None
    imported: bool = False
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        check_concurrencies(self.concurrencies)
        if self.window.decode_only and self.objectives:
            raise UsageError("no answer ends in a window of decode alone, so none can meet an objective; leave one out")
        if not self.controls:
            raise UsageError("a plan needs at least one variant with a control")
        # Names become folders.
        if strange := [name for name in self.variants if not _NAME.fullmatch(name)]:
            raise UsageError(f"variant {strange[0]!r} is no name; letters, digits, '.', '_' and '-' make one")
        if not 2 <= self.blocks <= MAX_BLOCKS:
            raise UsageError(f"blocks = {self.blocks}; from 2 to {MAX_BLOCKS:,}")
        check_share("delta", self.delta)
        check_share("alpha", self.alpha)
        if not MIN_TIME_SCALE <= self.time_scale <= MAX_TIME_SCALE:
            raise UsageError(
                f"time scale {self.time_scale:g} is out of range; from {MIN_TIME_SCALE:g} to {MAX_TIME_SCALE:g}, and 1 "
                "on a real engine"
            )

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant that is started, controls first."""
        return tuple(dict.fromkeys([*self.controls.values(), *self.controls]))

    def starts(self, block: int) -> tuple[Start, ...]:
        """The starts of a block (0-based), in the order they are to be made."""
        levels = list(self.concurrencies)
        random.Random(f"{self.seed}/levels/{block}").shuffle(levels)
        order = self._order(block)
        return tuple(Start(block, i, v, tuple(levels)) for i, v in enumerate(order))

    def prompt_seed(self, block: int) -> str:
        """Seed of the block's prompt list: the same for all its variants, new for each block."""
        return f"{self.seed}/prompts/{block}"

    def sha256(self) -> str:
        """Digest of the plan's canonical JSON."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Plain data for plan.json; `from_json` restores it."""
        data = asdict(self) | {"controls": dict(self.controls)}
        # A plan that uses none of these keeps the digest it had before plans could name them.
        if not self.objectives:
            del data["objectives"]
        if self.imported:
            del data["seed"], data["window"]
            return data
        del data["imported"]
        if not self.window.decode_only:
            del data["window"]["decode_only"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The plan a folder holds; InvalidCampaignError for a schema of another version or fields that make no plan."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise InvalidCampaignError(f"plan schema {found!r}; this version reads {SCHEMA}")
        try:
            return cls._of(data)
        except UsageError as e:
            raise InvalidCampaignError(f"plan.json makes no plan ({e}); it was changed") from e
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as e:
            raise InvalidCampaignError(f"plan.json makes no plan ({type(e).__name__}: {e}); it was changed") from e

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Plan:
        if data.get("imported"):
            data = {"seed": 0, "window": {}, **data}
        rest = {k: v for k, v in data.items() if k not in ("lengths", "window", "concurrencies", "objectives")}
        return cls(
            concurrencies=tuple(data["concurrencies"]),
            lengths=Lengths(**data["lengths"]),
            window=WindowRules(**data["window"]),
            objectives=Objectives(**data["objectives"]) if data.get("objectives") else None,
            **rest,
        )

    def _order(self, block: int) -> list[str]:
        names = list(self.variants)
        if self.design == "mirrored":
            random.Random(f"{self.seed}/order/{block}").shuffle(names)
            return names + names[::-1]
        return _balanced_order(names, self.seed, block)


def check_share(name: str, share: float) -> None:
    """Refuses what is no share above 0 and below 1."""
    if not 0 < share < 1:
        raise UsageError(f"{name} {share:g} is out of range; it is a share above 0 and below 1")


def check_concurrencies(levels: tuple[int, ...]) -> None:
    """Refuses an empty, unsorted, repeated or non-positive list of concurrencies."""
    if not levels:
        raise UsageError("no concurrency given; for example --concurrency 1,8,48,64,80,96")
    if min(levels) < 1:
        raise UsageError(f"concurrency {min(levels)} in {_listed(levels)}; each must be at least 1")
    if max(levels) > MAX_CONCURRENCY:
        raise UsageError(f"concurrency {max(levels)} in {_listed(levels)}; at most {MAX_CONCURRENCY}")
    if list(levels) != sorted(set(levels)):
        raise UsageError(f"concurrencies {_listed(levels)} must rise without repeats: {_listed(sorted(set(levels)))}")


def _listed(levels: tuple[int, ...] | list[int]) -> str:
    return ",".join(str(c) for c in levels)


def _balanced_order(names: list[str], seed: int, block: int) -> list[str]:
    # Blocks come in pairs: a shuffled order, then its mirror, so drift inside a block cancels over each pair.
    rng = random.Random(f"{seed}/order/{block // 2}")
    rng.shuffle(names)
    return names if block % 2 == 0 else names[::-1]
