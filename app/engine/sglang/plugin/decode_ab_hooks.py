"""Runs inside SGLang, as a plugin of its own framework, in each of its processes; SGLang's files stay as they are.

Forces the sm_120 attention on another GPU where asked, gives dummy weights a usable scale, and writes down which kernel
file this process imported and with what shapes attention was called. Imports nothing of the lab.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# JSON: {"path": "own" | "decode" | "all", "dummy": bool, "torch_indexer": bool, "one_of": ranks, "evidence": folder}.
ORDERS = "DECODE_AB_ORDERS"
BACKEND = "sglang.srt.layers.attention.deepseek_v4_backend"
INDEXER = "sglang.srt.layers.attention.dsv4.indexer"
MODEL = "sglang.srt.models.deepseek_v4"
CONTEXT = "sglang.srt.runtime_context"
LOADER = "sglang.srt.model_loader.loader"
ENTRY = "sglang.kernels.ops.attention.flash_mla_sm120"
KERNEL = "sglang.kernels.ops.attention.flash_mla_sm120_triton"
# Larger batches are prefill's, of any size: they count as one shape.
LARGEST_BATCH = 512
MOST_SHAPES = 200


def activate() -> None:
    """Registers the hooks; SGLang calls this in the launcher and in each process it spawns, then applies them."""
    orders = json.loads(os.environ[ORDERS])
    framework = import_module("sglang.srt.plugins.hook_registry")
    register, kinds = framework.HookRegistry.register, framework.HookType
    if orders["path"] == "all":
        _backend()._is_sm120 = True
    if orders["path"] == "decode":
        register(f"{BACKEND}.DeepseekV4AttnBackend.forward", on_decode_alone, kinds.AROUND)
    if orders["dummy"]:
        register(f"{LOADER}.initialize_dummy_weights", usable_weights, kinds.REPLACE)
    if orders["torch_indexer"]:
        register(f"{INDEXER}.fp8_paged_mqa_logits_torch", indexer_that_takes_a_column, kinds.REPLACE)
    rank = OneRank(orders["one_of"])
    witness = Witness(Path(orders["evidence"]), orders["path"], rank)
    if orders["one_of"] > 1:
        register(f"{MODEL}.MqaAttentionBase.__init__", rank.built, kinds.AROUND)
        if hasattr(import_module(KERNEL), "own_heads"):
            register(f"{KERNEL}.own_heads", rank.told_heads, kinds.AROUND)
    register(f"{ENTRY}.flash_mla_with_kvcache_sm120", witness.called, kinds.AROUND)
    replays = import_module("decode_ab_replay")
    register(replays.PROFILER, replays.Replay(orders["path"], orders["one_of"]).asked, kinds.AROUND)
    witness.write()


def on_decode_alone(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Takes the sm_120 branch while a decode batch passes; prefill keeps the card's own path."""
    # Position of forward_batch in forward(self, q, k, v, layer, forward_batch).
    batch = kwargs["forward_batch"] if "forward_batch" in kwargs else args[5]
    backend = _backend()
    before = backend._is_sm120
    backend._is_sm120 = bool(batch.forward_mode.is_decode())
    try:
        return forward(*args, **kwargs)
    finally:
        backend._is_sm120 = before


class OneRank:
    """Builds attention as the first of so many ranks has it, on a card alone: SGLang's own parameters for that."""

    def __init__(self, ranks: int) -> None:
        self._ranks, self._layers = ranks, 0

    def built(self, build: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Around MqaAttentionBase.__init__: heads, weights and padding of rank 0, and no exchange of what comes out."""
        running = int(import_module(CONTEXT).get_parallel().tp_size)
        if running != 1:
            raise RuntimeError(f"{running} ranks run where one of {self._ranks} is to be alone; leave out --tp-size")
        build(*args, **kwargs, attn_tp_rank=0, attn_tp_size=self._ranks)
        self._layers += 1

    def told_heads(self, told: Callable[[int], int], given: int) -> int:
        """Around the kernel file's own_heads, which asks SGLang for the ranks and would hear of one."""
        return self.own_heads(given)

    def own_heads(self, given: int) -> int:
        """Of the heads that attention is given, this rank's; SGLang only logs a hook that it could not apply."""
        if self._ranks > 1 and not self._layers:
            raise RuntimeError(f"no layer was built as one of {self._ranks} ranks has it; is this SGLang 0.5.17?")
        return int(import_module("decode_ab_replay").own_heads(given, self._ranks))


def indexer_that_takes_a_column(*args: Any, **kwargs: Any) -> Any:
    """SGLang's sm_120 form of its Torch indexer: the other one refuses the lengths that its caller gives it."""
    return import_module(INDEXER).fp8_paged_mqa_logits_torch_sm120(*args, **kwargs)


def usable_weights(model: Any, low: float = -1e-3, high: float = 1e-3, seed: int = 1234) -> None:
    """Random weights under which activations keep their size: norms 1, matrices of variance 1/inputs.

    Each tensor is seeded by its name, so every start of every variant has the same weights.
    """
    torch = import_module("torch")
    for name, values in model.state_dict().items():
        if not values.is_floating_point():
            continue
        chance = torch.Generator(values.device)
        chance.manual_seed(seed + zlib.crc32(name.encode()))
        if values.ndim == 1 and "norm" in name:
            values.fill_(1.0)
        elif values.ndim < 2 or any(part in name for part in ("hc_", "attn_sink", "ape", "bias")):
            values.uniform_(low, high, generator=chance)
        else:
            spread = 1.0 if "embed" in name else values.shape[-1] ** -0.5
            values.normal_(0.0, spread, generator=chance)


class Witness:
    """Writes <pid>.json: the kernel file as imported here, the selector in force, and each shape called so far."""

    def __init__(self, folder: Path, path: str, rank: OneRank) -> None:
        self._folder, self._path, self._rank = folder, path, rank
        self._shapes: list[tuple[Any, ...]] = []
        # By heads given: this rank's own, and those that the kernel is launched for.
        self._heads: dict[int, dict[str, int]] = {}
        kernel, entry = import_module(KERNEL), import_module(ENTRY)
        self._kernel = kernel
        file = Path(str(kernel.__file__))
        self._imported = {
            "kernel_file": str(file),
            "kernel_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "selector": entry._sm120_default_backend,
        }

    def called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Notes a shape at its first call; CUDA graphs are replayed without coming here."""
        torch = import_module("torch")
        query, extra = kwargs["q"], kwargs.get("extra_indices_in_kvcache")
        shape = (
            min(int(query.shape[0]), LARGEST_BATCH),
            int(query.shape[-2]),
            int(kwargs["indices"].shape[-1]),
            0 if extra is None else int(extra.shape[-1]),
            bool(torch.cuda.is_current_stream_capturing()),
        )
        if shape not in self._shapes and len(self._shapes) < MOST_SHAPES:
            # After the call: a shape that failed was not run.
            result = function(*args, **kwargs)
            self._shapes.append(shape)
            self._heads[shape[1]] = self._told_heads(shape[1])
            self.write()
            return result
        return function(*args, **kwargs)

    def _told_heads(self, given: int) -> dict[str, int]:
        # The file's own function, by which its host code launches, beside what SGLang says.
        launched = getattr(self._kernel, "own_heads", None)
        return {"own": self._rank.own_heads(given), "launched": given if launched is None else int(launched(given))}

    def write(self) -> None:
        """The whole file anew, by rename."""
        names = ("batch", "heads", "topk", "extra_topk", "capturing")
        facts = {
            "schema": 1,
            "pid": os.getpid(),
            "started": started_at(os.getpid()),
            "path": self._path,
            **self._imported,
            "calls": [dict(zip(names, shape, strict=True)) | self._heads[shape[1]] for shape in self._shapes],
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f".{os.getpid()}"
        partial.write_text(json.dumps(facts, indent=1))
        partial.replace(self._folder / f"{os.getpid()}.json")


def _backend() -> Any:
    return import_module(BACKEND)


def started_at(pid: int) -> str:
    """Start time of a process in clock ticks, which tells it from a later one of the same number."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
