"""What is timed: our kernel under each variant, and the kernels it is compared with, behind one call."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from kernels import sparse_mla_decode as ours
from kernels.cases import Inputs

Call = Callable[[Inputs], tuple[torch.Tensor, torch.Tensor]]
# SGLang gives FlashMLA at least this many heads.
FLASHMLA_HEADS = 64


@dataclass(frozen=True, slots=True)
class Provider:
    """One kernel to time. heads: a multiple to which q is padded before the clock starts; slow: few sets are enough."""

    name: str
    call: Call
    heads: int = 1
    slow: bool = False


def our_kernel(name: str, choice: ours.Choice | None = None, splits: int | None = None) -> Provider:
    """Our kernel as the file ships, or under one launch choice."""

    def call(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        return ours.sparse_mla_decode(**inputs.arguments(), choice=choice, splits=splits)

    return Provider(name, call)


def variant_file(name: str, path: Path) -> Provider:
    """A patched copy of our file, or SGLang's own, through the entry point that SGLang calls."""
    module = _load(path)

    def call(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = module.flash_mla_sparse_decode_triton(
            inputs.q,
            inputs.k_cache.view(torch.float8_e4m3fn),
            inputs.indices,
            inputs.topk_length,
            inputs.attn_sink,
            inputs.q.shape[-1],
            inputs.q.shape[-1] ** -0.5,
            None if inputs.extra_k_cache is None else inputs.extra_k_cache.view(torch.float8_e4m3fn),
            inputs.extra_indices,
            inputs.extra_topk_length,
        )
        return out, lse

    return Provider(name, call, slow=not hasattr(module, "sparse_mla_decode"))


def flashmla(library: Path) -> Callable[[], Provider]:
    """FlashMLA's CUDA kernel out of sglang-kernel's flashmla_ops library; the result makes fresh scheduler data."""
    torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    operator = torch.ops.sgl_kernel.sparse_decode_fwd.default

    def provider() -> Provider:
        metadata: list[torch.Tensor | None] = [None, None]

        def call(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
            extra = inputs.extra_k_cache
            out, lse, metadata[0], metadata[1] = operator(
                inputs.q,
                inputs.k_cache.view(torch.float8_e4m3fn),
                inputs.indices,
                inputs.topk_length,
                inputs.attn_sink,
                *metadata,
                None if extra is None else extra.view(torch.float8_e4m3fn),
                inputs.extra_indices,
                inputs.extra_topk_length,
                inputs.q.shape[-1],
                inputs.q.shape[-1] ** -0.5,
            )
            return out, lse

        return Provider("flashmla", call, heads=FLASHMLA_HEADS)

    return provider


def _load(path: Path) -> ModuleType:
    name = f"timed_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"cannot load a kernel from {path}; give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
