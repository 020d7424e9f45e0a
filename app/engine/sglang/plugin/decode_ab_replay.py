"""Runs inside SGLang beside the hooks: keeps the inputs of one decode step's attention, and attends to them anew.

Both are done between batches, on word that comes in by SGLang's own /start_profile; a start that is never asked pays
nothing. Imports nothing of the lab.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

# profile_id of a request that is for this module and no profile; num_steps is the least batch, output_dir the folder.
RECORD, RELEASE, REPLAY = "decode-ab-record", "decode-ab-release", "decode-ab-replay"
# Decode without graphs until the release: one captured before the profiler's library came can hang under the profiler.
EAGER = "decode-ab-eager"
PROFILER = "sglang.srt.managers.scheduler_components.profiler_manager.SchedulerProfilerManager._profile"
MESSAGES = "sglang.srt.managers.io_struct"
BACKEND = "sglang.srt.layers.attention.deepseek_v4_backend"
RUNNER = "sglang.srt.model_executor.runner.decode_cuda_graph_runner"
# Where each path's attention is looked up at every call.
SM_120 = ("sglang.kernels.ops.attention.flash_mla_sm120", "flash_mla_with_kvcache_sm120")
CARD = ("sgl_kernel.flash_mla", "flash_mla_with_kvcache")
INPUTS = "inputs.pt"
LARGEST_QUERY = 1e4
LARGEST_BYTES = 64 * 1024 * 1024
# What a call is kept as: tensors by these names, each cache with its indices and their valid count.
CACHES = (("k_cache", "indices", "topk_length"), ("extra_k_cache", "extra_indices_in_kvcache", "extra_topk_length"))


class Replay:
    """path, one_of: as the hooks were ordered."""

    def __init__(self, path: str, one_of: int = 1) -> None:
        self._path, self._one_of, self._first = path, one_of, True
        self._calls: dict[str, dict[str, Any]] = {}
        self._layer = -1
        self._undo: list[tuple[Any, str, Any]] = []

    def asked(self, profile: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Around SchedulerProfilerManager._profile(self, recv_req): takes what is ours, leaves profiles to SGLang."""
        request = kwargs["recv_req"] if "recv_req" in kwargs else args[1]
        if request.profile_id not in (RECORD, RELEASE, REPLAY, EAGER):
            return profile(*args, **kwargs)
        folder = Path(request.output_dir)
        # Every rank leaves its graphs for the recorded steps, or they would wait for each other; the first one tells.
        self._first = _rank() == 0
        if request.profile_id == RECORD:
            self._told(folder, RECORD, lambda: self._arm(folder, int(request.num_steps)))
        elif request.profile_id == EAGER:
            self._told(folder, EAGER, self._leave_graphs)
        elif request.profile_id == RELEASE:
            self._disarm()
        elif self._first:
            self._told(folder, REPLAY, lambda: self._replay(folder))
        return import_module(MESSAGES).ProfileReqOutput(success=True, message="decode-ab")

    def _told(self, folder: Path, what: str, act: Callable[[], Mapping[str, Any] | None]) -> None:
        """Does it and writes down how it ended; None: it has not ended yet."""
        try:
            found = act()
        except Exception as error:
            # Anything that got out would end the server.
            self._disarm()
            found = {"error": f"{type(error).__name__}: {error}"[:500]}
        if found is not None and self._first:
            facts = {"schema": 1, "pid": os.getpid(), "error": "", **found}
            _write(folder / f"{what}.json", json.dumps(facts).encode())

    def _arm(self, folder: Path, rows: int) -> None:
        backend = import_module(BACKEND).DeepseekV4AttnBackend
        # A graph is replayed without passing attention's code.
        self._leave_graphs()
        self._undo.append((backend, "forward", backend.forward))
        backend.forward = self._watching(backend.forward, folder, rows)

    def _leave_graphs(self) -> dict[str, Any]:
        runner = import_module(RUNNER).DecodeCudaGraphRunner
        self._disarm()
        self._undo = [(runner, "can_run_graph", runner.can_run_graph)]
        runner.can_run_graph = _never
        return {"graphs": False}

    def _disarm(self) -> None:
        for owner, name, before in self._undo:
            setattr(owner, name, before)
        self._undo, self._calls, self._layer = [], {}, -1

    def _watching(self, forward: Callable[..., Any], folder: Path, rows: int) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            # Positions in forward(self, q, k, v, layer, forward_batch).
            batch = kwargs["forward_batch"] if "forward_batch" in kwargs else args[5]
            layer = int((kwargs["layer"] if "layer" in kwargs else args[4]).layer_id)
            if not self._undo or not batch.forward_mode.is_decode() or int(batch.batch_size) < rows:
                return forward(*args, **kwargs)
            if self._calls and layer <= self._layer:
                self._told(folder, RECORD, lambda: self._keep(folder))
                return forward(*args, **kwargs)
            self._layer = layer
            with self._noting(folder, rows):
                return forward(*args, **kwargs)

        return watched

    @contextmanager
    def _noting(self, folder: Path, rows: int) -> Iterator[None]:
        place, name = self._attention()
        module = import_module(place)
        before = getattr(module, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._told(folder, RECORD, lambda: self._note(kwargs, rows))
            return before(*args, **kwargs)

        setattr(module, name, noted)
        try:
            yield
        finally:
            setattr(module, name, before)

    def _note(self, call: Mapping[str, Any], rows: int) -> None:
        key = kind(call)
        if key not in self._calls:
            self._calls[key] = kept(call, rows)

    def _attention(self) -> tuple[str, str]:
        """The path that decode takes in this process."""
        return CARD if self._path == "own" and not import_module(BACKEND)._is_sm120 else SM_120

    def _keep(self, folder: Path) -> dict[str, Any]:
        calls = self._calls
        self._disarm()
        if (size := sum(_size(call) for call in calls.values())) > LARGEST_BYTES:
            raise ValueError(f"the inputs take {size} bytes, {LARGEST_BYTES} is the most that is kept")
        held = io.BytesIO()
        import_module("torch").save(calls, held)
        if self._first:
            _write(folder / INPUTS, held.getvalue())
        return {"inputs_sha256": hashlib.sha256(held.getvalue()).hexdigest(), "calls": sorted(calls)}

    def _replay(self, folder: Path) -> dict[str, Any]:
        torch, numpy = import_module("torch"), import_module("numpy")
        data = (folder / INPUTS).read_bytes()
        calls = torch.load(io.BytesIO(data), weights_only=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        place, name = self._attention()
        attention = getattr(import_module(place), name)
        outputs: dict[str, Any] = {}
        with torch.inference_mode():
            for key, call in calls.items():
                for turn in ("first", "again"):
                    arguments = restored(call, device) | (_card_only() if place == CARD[0] else {})
                    outputs[f"{key}/{turn}"] = attention(**arguments)[0].float().cpu().numpy()
        packed = io.BytesIO()
        numpy.savez(packed, **outputs)
        _write(folder / f"outputs-{os.getpid()}.npz", packed.getvalue())
        heads = own_heads(max(int(call["q"].shape[-2]) for call in calls.values()), self._one_of)
        attended = {"attention": f"{place}.{name}", "own_heads": heads}
        return {"inputs_sha256": hashlib.sha256(data).hexdigest(), **attended}


def own_heads(given: int, one_of: int = 1) -> int:
    """How many of the heads that attention is given are this rank's own, by SGLang's own account; the rest fills up.

    one_of: the ranks of which this one is alone here, which SGLang does not know of.
    """
    context: Any = sys.modules.get("sglang.srt.runtime_context")
    if context is None or not import_module("torch").distributed.is_initialized():
        return given
    ranks = one_of * int(context.get_parallel().attn_tp_size)
    return given if ranks == 1 else min(given, _heads_of_all(context) // ranks)


@lru_cache(maxsize=1)
def _heads_of_all(context: Any) -> int:
    models = import_module("sglang.srt.configs.model_config")
    return int(models.ModelConfig.from_server_args(context.get_server_args()).num_attention_heads)


def kind(call: Mapping[str, Any]) -> str:
    """Tells apart the kinds of layer: how many tokens are selected of each cache, as in 128+512."""
    extra = call.get("extra_indices_in_kvcache")
    return f"{int(call['indices'].shape[-1])}+{0 if extra is None else int(extra.shape[-1])}"


def kept(call: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """A call's arguments on the host: its first rows, and of each cache only the pages that they name."""
    sink = call.get("attn_sink")
    found: dict[str, Any] = {
        "q": _host(_queries(call["q"][:rows])),
        "head_dim_v": int(call["head_dim_v"]),
        "softmax_scale": None if call.get("softmax_scale") is None else float(call["softmax_scale"]),
        "attn_sink": None if sink is None else _host(sink),
    }
    for cache, indices, length in CACHES:
        if call.get(cache) is not None:
            lengths = call.get(length)
            lengths = None if lengths is None else lengths[:rows]
            found[cache], found[indices] = _pages(call[cache], call[indices][:rows], lengths)
            found[length] = None if lengths is None else _host(lengths)
    return found


def restored(call: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The arguments of a kept call on a device, each cache with the strides that it had."""
    torch = import_module("torch")
    found = {name: value.to(device) if hasattr(value, "to") else value for name, value in call.items()}
    for cache, _, _ in CACHES:
        if cache in call:
            held = call[cache]
            raw = held["bytes"].to(device).view(getattr(torch, held["dtype"]))
            found[cache] = raw.as_strided(held["shape"], held["strides"])
    return found


def _queries(query: Any) -> Any:
    """Heads that only fill a rank up to 64 are never written, and what lies there may be no number: they become 0."""
    size = query.float().abs().amax(-1, keepdim=True)
    return import_module("torch").where(size < LARGEST_QUERY, query, 0)


def _pages(cache: Any, indices: Any, lengths: Any) -> tuple[dict[str, Any], Any]:
    """The named pages of a cache [pages, page, 1, bytes], and the indices into them; what is not valid becomes -1."""
    torch = import_module("torch")
    page, stride = int(cache.shape[1]), int(cache.stride(0))
    valid = (indices >= 0) & (indices < cache.shape[0] * page)
    if lengths is not None:
        place = torch.arange(indices.shape[-1], device=indices.device)
        valid &= place < lengths.reshape(-1, *[1] * (indices.ndim - 1))
    used = torch.unique(indices[valid] // page).long()
    used = used if used.numel() else torch.zeros(1, dtype=torch.long, device=indices.device)
    whole = cache.as_strided((cache.shape[0], stride), (stride, 1)).view(torch.uint8)
    moved = torch.searchsorted(used, torch.where(valid, indices // page, used[0]).long()) * page + indices % page
    held = {
        "bytes": _host(whole[used]),
        "dtype": str(cache.dtype).rpartition(".")[2],
        "shape": [int(used.numel()), *map(int, cache.shape[1:])],
        "strides": list(map(int, cache.stride())),
    }
    return held, _host(torch.where(valid, moved, -1).to(indices.dtype))


def _card_only() -> dict[str, Any]:
    """What the card's own attention wants besides; its schedule is made for one kind of call and used once."""
    metadata = import_module(CARD[0]).get_mla_metadata()[0]
    fresh = {"block_table": None, "cache_seqlens": None, "tile_scheduler_metadata": metadata}
    return fresh | {"is_fp8_kvcache": True}


def _host(values: Any) -> Any:
    return values.detach().to("cpu").contiguous().clone()


def _size(call: Mapping[str, Any]) -> int:
    held = [value["bytes"] if isinstance(value, dict) else value for value in call.values()]
    return sum(int(value.numel()) * int(value.element_size()) for value in held if hasattr(value, "numel"))


def _rank() -> int:
    distributed = import_module("torch").distributed
    return int(distributed.get_rank()) if distributed.is_initialized() else 0


def _never(*_: Any) -> bool:
    return False


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
