"""How real SGLang servers are run as local processes: every choice that can change a figure, in one object."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from app.engine.sglang.model import LAYERS
from app.errors import UsageError
from app.settings import BACKENDS, RELEASES

DUMMY = "dummy-dsv4"
HEADS = 64
# What manifests of older campaigns do not name.
LATER = ("layers", "one_of")
# Releases in which attention can be built as one rank of several has it, and how many can share the model's groups.
ALONE_RELEASES = ("0.5.17",)
SHARES = (1, 2, 4, 8)
# A layer of each kind at least.
FEWEST_LAYERS = 4
TOPOLOGIES = ("pd", "single")
# What stands before prefill and decode: SGLang's router, or the small load balancer in its package.
BALANCERS = ("rust", "mini")
PATHS = ("auto", "own", "decode", "all")


@dataclass(frozen=True, slots=True)
class Served:
    """Settings of the servers; lists are written 1+8+96.

    model: folder of a model, or dummy-dsv4, which has as many query heads and layers as asked for. topology: prefill,
    decode and router, or single, one server that does both. balancer: rust, SGLang's router, or mini, the small one of
    its package. path: on which calls SGLang's sm_120 attention is forced on a GPU that is none: decode, all, own
    (never); auto forces decode where the GPU is no sm_120, all where FlashMLA has no form for the heads. arch: 0 asks
    the driver. one_of: dummy-dsv4 has attention and experts as the first of so many ranks, alone on its card, with
    nothing exchanged. mem_fraction, max_total_tokens: 0 leaves it to SGLang.
    light: leave out what SGLang would compile for minutes at its start. prebuilt: compile a variant's kernels before.
    inspected: look at a variant's first start after its load, which takes seconds of the card's time.
    """

    release: str = "0.5.17"
    model: str = DUMMY
    heads: int = HEADS
    layers: int = LAYERS
    topology: str = "pd"
    balancer: str = "rust"
    path: str = "auto"
    arch: int = 0
    tp: int = 1
    one_of: int = 1
    prefill_gpu: int = 0
    decode_gpu: int = 0
    transfer: str = "nixl"
    mem_fraction: float = 0.3
    max_total_tokens: int = 0
    context_length: int = 4096
    chunked_prefill: int = 2048
    max_running: int = 96
    graph_batches: tuple[int, ...] = (1, 8, 48, 64, 80, 96)
    light: bool = True
    prebuilt: bool = True
    inspected: bool = True
    seed: int = 1
    start_timeout_s: float = 450.0
    extra_args: str = ""

    def __post_init__(self) -> None:
        for key, known in (
            ("release", RELEASES),
            ("topology", TOPOLOGIES),
            ("balancer", BALANCERS),
            ("path", PATHS),
            ("transfer", BACKENDS),
        ):
            if getattr(self, key) not in known:
                raise UsageError.unknown(key, str(getattr(self, key)), known)
        if self.single and self.balancer != BALANCERS[0]:
            raise UsageError(f"balancer={self.balancer} stands before prefill and decode; topology=single has neither")
        if min(self.heads, self.tp, self.one_of, self.max_running, *self.graph_batches) < 1:
            raise UsageError("heads, tp, one_of, max_running and graph_batches start at 1")
        if self.one_of > 1 and (self.tp > 1 or self.release not in ALONE_RELEASES or self.one_of not in SHARES):
            shares, releases = ", ".join(map(str, SHARES)), ", ".join(ALONE_RELEASES)
            raise UsageError(f"one_of={self.one_of}: has to be one of {shares}, with tp=1 and a release of {releases}")
        if self.one_of > 1 and self.heads % self.one_of:
            raise UsageError(
                f"heads={self.heads} cannot be shared among one_of={self.one_of} ranks; make it a multiple"
            )
        if not self.single and 0 < abs(self.prefill_gpu - self.decode_gpu) < self.tp:
            raise UsageError(
                f"prefill_gpu={self.prefill_gpu} and decode_gpu={self.decode_gpu} share some GPUs at tp={self.tp}; let "
                f"decode begin {self.tp} further on, or both at the same one"
            )
        if self.layers < FEWEST_LAYERS or self.layers % 2:
            raise UsageError(f"layers={self.layers}: dummy-dsv4 has an even number of layers, {FEWEST_LAYERS} or more")
        if self.graph_batches[-1] != self.max_running:
            raise UsageError(
                f"graph_batches end at {self.graph_batches[-1]} and max_running is {self.max_running}: larger batches "
                "would run without a graph; make them equal"
            )

    def recorded(self) -> dict[str, Any]:
        """Settings for a manifest; those of LATER only where not at their default, so that older campaigns go on."""
        usual = {field.name: field.default for field in fields(self) if field.name in LATER}
        return {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}

    @property
    def dummy(self) -> bool:
        """Whether the model is the lab's own, of random weights."""
        return self.model == DUMMY

    @property
    def single(self) -> bool:
        return self.topology == "single"

    @property
    def ranks(self) -> int:
        """Among how many ranks the heads are shared, whether they all run or one alone."""
        return self.tp * self.one_of

    @property
    def served_name(self) -> str:
        rank = f"-1of{self.one_of}" if self.one_of > 1 else ""
        own = f"{DUMMY}-h{self.heads}{rank}" + (f"-l{self.layers}" if self.layers != LAYERS else "")
        return own if self.dummy else self.model.rstrip("/").rpartition("/")[2]

    def more_arguments(self) -> list[str]:
        """The extra arguments as a shell would split them."""
        try:
            return shlex.split(self.extra_args)
        except ValueError as e:
            raise UsageError(f"extra_args {self.extra_args!r}: {e}") from e


def read_served(texts: Mapping[str, str]) -> Served:
    """Settings from key=value texts; UsageError names a key that is none and a value that is not of its kind."""
    known = {f.name: f.type for f in fields(Served)}
    for key in texts:
        if key not in known:
            raise UsageError.unknown("server setting", key, list(known))
    return Served(**{key: _typed(key, text, str(known[key])) for key, text in texts.items()})


def require_heeded(served: Served) -> None:
    """Refuses a number of heads, layers or ranks beside a model that has its own; older campaigns may hold one."""
    of_dummy = {
        "heads": (served.heads, HEADS),
        "layers": (served.layers, LAYERS),
        "one_of": (served.one_of, 1),
    }
    unheeded = [f"{name}={value}" for name, (value, usual) in of_dummy.items() if value != usual]
    if unheeded and not served.dummy:
        raise UsageError(f"{', '.join(unheeded)}: of {DUMMY} alone, and {served.model} has its own; leave it out")


def split_settings(text: str) -> dict[str, str]:
    """The pairs of "heads=16,topology=single"; UsageError for a part that is no pair."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if bad := [part for part in parts if "=" not in part]:
        raise UsageError(f"--server {text!r}: {bad[0]!r} is no KEY=VALUE; for example heads=16,topology=single")
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}


def _typed(key: str, text: str, kind: str) -> Any:
    try:
        if kind.startswith("tuple"):
            return tuple(int(part) for part in text.split("+"))
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (ValueError, KeyError) as e:
        forms = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        raise UsageError(f"{key}={text}: {forms.get(kind, 'whole numbers joined by +')} is needed") from e
