"""What the campaign asks of the load driver for one start, as one JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from app.errors import RecordsError, UsageError
from loadtest.plan import Lengths, WindowRules

SCHEMA = 1
LOCUSTFILE = Path(__file__).with_name("locustfile.py")
Api = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Workload:
    """How lengths and prompts vary from request to request; the default keeps both exact.

    kind: fixed, uniform (factor within 1 ± spread), lognormal (mean 1, sigma spread) or dataset (a JSONL file of
    {"prompt", "output_tokens"}). rate_per_s: open loop at that rate (Poisson, engine time); None keeps the closed loop.
    turns: requests of one conversation; each turn repeats the earlier ones as its prefix.
    """

    kind: Literal["fixed", "uniform", "lognormal", "dataset"] = "fixed"
    spread: float = 0.0
    dataset: Path | None = None
    rate_per_s: float | None = None
    turns: int = 1

    def __post_init__(self) -> None:
        if self.kind == "dataset" and self.dataset is None:
            raise UsageError("workload 'dataset' needs a dataset file")
        if not 0 <= self.spread < 1:
            raise UsageError(f"spread {self.spread}; it must be in [0, 1)")
        if self.turns < 1 or not (self.rate_per_s is None or 0 < self.rate_per_s < math.inf):
            raise UsageError(f"turns {self.turns}, rate {self.rate_per_s}; both must be positive and finite")


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One start's work: concurrencies in visiting order, rules in engine time, and where results go.

    block, start: counted from 0. time_scale: engine seconds per wall second. An empty decode_url or prefill_url: that
    server's counters are not read.
    """

    block: int
    start: int
    variant: str
    control: str
    concurrencies: tuple[int, ...]
    prompt_seed: str
    router_url: str
    out: Path
    model: str = "default"
    lengths: Lengths = field(default_factory=lambda: Lengths(1024, 256))
    window: WindowRules = field(default_factory=WindowRules)
    time_scale: float = 1.0
    decode_url: str = ""
    prefill_url: str = ""
    router_metrics_url: str = ""
    simulated: bool = False
    api: Api = "completions"
    workload: Workload = field(default_factory=Workload)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        # Visiting order is drawn by the plan, so it need not rise; it still must hold real levels, each once.
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise UsageError(f"concurrencies {list(self.concurrencies)}; at least one, each at least 1")
        if len(set(self.concurrencies)) != len(self.concurrencies):
            raise UsageError(f"concurrencies {list(self.concurrencies)}; each may be visited once")
        if not 0 < self.time_scale < math.inf:
            raise UsageError(f"time_scale {self.time_scale}; it must be positive and finite")

    def wall_s(self, engine_s: float) -> float:
        """Wall seconds that an engine duration takes."""
        return engine_s / self.time_scale

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` restores it."""
        data = asdict(self) | {"out": str(self.out), "concurrencies": list(self.concurrencies)}
        dataset = self.workload.dataset
        data["workload"]["dataset"] = None if dataset is None else str(dataset)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StartOrder:
        """The order a file holds; another schema or an unknown field is refused."""
        if data.get("schema") != SCHEMA:
            raise RecordsError(f"order schema {data.get('schema')!r}; this version reads {SCHEMA}")
        values = dict(data)
        try:
            workload = dict(values.pop("workload", {}))
            if workload.get("dataset") is not None:
                workload["dataset"] = Path(workload["dataset"])
            return cls(
                concurrencies=tuple(values.pop("concurrencies")),
                lengths=Lengths(**values.pop("lengths")),
                window=WindowRules(**values.pop("window")),
                out=Path(values.pop("out")),
                workload=Workload(**workload),
                **values,
            )
        except (KeyError, TypeError) as e:
            raise RecordsError(f"not a start's order ({e}); the campaign writes them") from e

    def write(self, path: Path) -> None:
        """Writes the order as JSON."""
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> StartOrder:
        """Reads an order; RecordsError names the file that cannot be read."""
        try:
            order = cls.from_json(json.loads(path.read_text()))
            # A relative folder is meant from where the order lies, so that a campaign can be moved.
            return replace(order, out=path.resolve().parent / order.out)
        except (OSError, ValueError, AttributeError) as e:
            raise RecordsError(f"{path}: no order ({e}); the campaign writes one for each start") from e
