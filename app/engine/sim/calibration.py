"""Timing of the simulated engine, read strictly from a file in which every number names its source."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType

from app.errors import UsageError
from app.yaml_file import Entry, read_yaml

SCHEMA = 1
SOURCES = ("reference campaign", "reported", "measured", "assumed")
MAX_BATCH = 4096
PREFILL_RANGES = {"fixed_ms": (0.0, 1e6), "tokens_per_s": (1.0, 1e9), "chunk_tokens": (1.0, 1e7)}
TRANSFER_RANGES = {
    "fixed_ms": (0.0, 1e6),
    "gb_per_s": (0.001, 1e6),
    "kb_per_token": (0.0, 1e6),
    "bootstrap_timeout_s": (0.001, 1e6),
    "waiting_timeout_s": (0.001, 1e6),
}
NOISE_RANGES = {
    "slow_share": (0.0, 1.0),
    "step_rho": (0.0, 0.9999),
    "drift_period_s": (0.001, 1e9),
    "stall_ms": (0.0, 1e6),
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity by batch, linear between rows; beyond the last row along its slope when `extend`, else constant."""

    batches: tuple[int, ...]
    values: tuple[float, ...]
    extend: bool

    def at(self, batch: float) -> float:
        """The value at a batch."""
        right = min(max(bisect_right(self.batches, batch), 1), len(self.batches) - 1)
        if len(self.batches) == 1 or batch <= self.batches[0]:
            return self.values[0]
        if batch >= self.batches[-1] and not self.extend:
            return self.values[-1]
        left = right - 1
        slope = (self.values[right] - self.values[left]) / (self.batches[right] - self.batches[left])
        return self.values[left] + slope * (batch - self.batches[left])


@dataclass(frozen=True, slots=True)
class Noise:
    """One noise profile; percent of the step time unless the name has a unit."""

    start_sd: float
    slow_share: float
    slow: float
    step_sd: float
    step_rho: float
    drift: float
    drift_period_s: float
    stall_per_s: float
    stall_ms: float


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """What a prefill step takes, and how many tokens one may compute."""

    fixed_ms: float
    tokens_per_s: float
    chunk_tokens: float

    def seconds(self, tokens: int) -> float:
        """Seconds of one prefill step over so many uncached tokens."""
        return self.fixed_ms / 1e3 + tokens / self.tokens_per_s


@dataclass(frozen=True, slots=True)
class Transfer:
    """KV transfer from prefill to decode, and how long each side waits for the other."""

    fixed_ms: float
    gb_per_s: float
    kb_per_token: float
    bootstrap_timeout_s: float
    waiting_timeout_s: float

    def seconds(self, tokens: int) -> float:
        """Seconds to move the KV of so many tokens."""
        return self.fixed_ms / 1e3 + self.size_bytes(tokens) / (self.gb_per_s * 1e9)

    def size_bytes(self, tokens: int) -> float:
        """Bytes of the KV of so many tokens."""
        return tokens * self.kb_per_token * 1e3


@dataclass(frozen=True, slots=True)
class Calibration:
    """All timing. effects: from a config "(16,8,2)" or a selector "flashinfer" to percent of throughput by batch."""

    path: Path
    sha256: str
    base_config: str
    base_step_ms: Curve
    effects: Mapping[str, Curve]
    selectors: tuple[str, ...]
    pruned: tuple[str, ...]
    quiet_share: float
    tuned_batch: int
    prefill: PrefillCost
    transfer: Transfer
    capacity_tokens: int
    reserved_tokens: int
    mean_answer_tokens: int
    noises: Mapping[str, Noise]

    def step_s(self, choice: str, batch: int) -> float:
        """Noise-free decode step in seconds under a config or selector."""
        return self.base_step_ms.at(batch) / 1000 / (1 + self._effect(choice).at(batch) / 100)

    def noise(self, name: str) -> Noise:
        """A noise profile by name."""
        if name not in self.noises:
            raise UsageError.unknown("noise profile", name, list(self.noises))
        return self.noises[name]

    def survivors(self, configs: Sequence[str]) -> tuple[str, ...]:
        """Configs of an autotune list that fit sm_120; UsageError when one has no timing here or none is left."""
        left = tuple(dict.fromkeys(c for c in configs if c not in self.pruned))
        for config in left:
            self._effect(config)
        if not left:
            raise UsageError(
                f"no config of {', '.join(configs) or 'an empty list'} fits sm_120; {self.path} prunes them all"
            )
        return left

    def _effect(self, choice: str) -> Curve:
        if choice not in self.effects:
            known = ", ".join(self.effects)
            raise UsageError(
                f"{self.path.name} has no timing for {choice}; known: {known}. To simulate it, copy {self.path}, add "
                "what you suppose with its source, and give the copy by --calibration: it finds what you put in"
            )
        return self.effects[choice]


def read_calibration(path: Path) -> Calibration:
    """Reads and checks a calibration file; VariantError names the line of what is wrong."""
    root = read_yaml(path)
    top = root.mapping(
        (
            "schema",
            "decode_step",
            "configs",
            "pruned",
            "autotune",
            "selectors",
            "prefill",
            "transfer",
            "kv",
            "answers",
            "noise",
        )
    )
    if top["schema"].integer() != SCHEMA:
        raise top["schema"].refusal(f"must be {SCHEMA}")
    step = top["decode_step"].mapping(("config", "rows"))
    configs, selectors = _curves(top["configs"]), _curves(top["selectors"])
    autotune = _sourced(top["autotune"], quiet_share=(0, 1), batch=(1, MAX_BATCH))
    kv = _sourced(top["kv"], capacity_tokens=(1, 1e12), reserved_tokens=(0, 1e6))
    return Calibration(
        path=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        base_config=step["config"].choice(tuple(configs)),
        base_step_ms=_curve(step["rows"], "ms", 0.001, 1e6, extend=True),
        effects=MappingProxyType(configs | selectors),
        selectors=tuple(selectors),
        pruned=_pruned(top["pruned"], configs),
        quiet_share=autotune["quiet_share"],
        tuned_batch=int(autotune["batch"]),
        prefill=PrefillCost(**_sourced(top["prefill"], **PREFILL_RANGES)),
        transfer=Transfer(**_sourced(top["transfer"], **TRANSFER_RANGES)),
        capacity_tokens=int(kv["capacity_tokens"]),
        reserved_tokens=int(kv["reserved_tokens"]),
        mean_answer_tokens=int(_sourced(top["answers"], mean_tokens=(1, 1e6))["mean_tokens"]),
        noises=MappingProxyType({key.text(): _noise(profile) for key, profile in top["noise"].pairs()}),
    )


def _curves(entry: Entry) -> dict[str, Curve]:
    return {key.text(): _curve(rows, "percent", -99, 10_000, extend=False) for key, rows in entry.pairs()}


def _curve(entry: Entry, unit: str, low: float, high: float, extend: bool) -> Curve:
    batches: list[int] = []
    values: list[float] = []
    for item in entry.items():
        row = item.mapping(("batch", unit, "source"))
        batch = row["batch"].integer()
        if not 1 <= batch <= MAX_BATCH or (batches and batch <= batches[-1]):
            raise row["batch"].refusal(f"must rise from row to row within 1..{MAX_BATCH}, not {batch} after {batches}")
        batches.append(batch)
        values.append(_number(row[unit], low, high))
        _check_source(row["source"])
    return Curve(tuple(batches), tuple(values), extend)


def _pruned(entry: Entry, timed: Mapping[str, Curve]) -> tuple[str, ...]:
    names = []
    for key, value in entry.pairs():
        _check_source(value.mapping(("source",))["source"])
        if key.text() in timed:
            raise key.refusal(f"{key.text()} is also timed under configs; a config is one or the other")
        names.append(key.text())
    return tuple(names)


def _sourced(entry: Entry, **ranges: tuple[float, float]) -> dict[str, float]:
    found = {}
    for name, item in entry.mapping(tuple(ranges)).items():
        parts = item.mapping(("value", "source"))
        found[name] = _number(parts["value"], *ranges[name])
        _check_source(parts["source"])
    return found


def _noise(entry: Entry) -> Noise:
    names = [f.name for f in fields(Noise)]
    parts = entry.mapping((*names, "source"))
    _check_source(parts["source"])
    return Noise(**{name: _number(parts[name], *NOISE_RANGES.get(name, (0, 50))) for name in names})


def _number(entry: Entry, low: float, high: float) -> float:
    value = entry.number()
    if not low <= value <= high:
        raise entry.refusal(f"must be from {low:g} to {high:g}, not {value:g}")
    return value


def _check_source(entry: Entry) -> None:
    if not entry.text().startswith(SOURCES):
        raise entry.refusal(f"must begin with one of: {', '.join(SOURCES)}; not {entry.text()!r}")
