"""The attention geometry of one decode rank, computed from a model's config.json and its attention parallelism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NOPE_DIM = 448
ROPE_DIM = 64
MAX_HEADS = 128
MAX_BLOCK_H = 32
# FlashMLA has forms for 64 and 128 heads, so SGLang fills a rank's query up to them before any kernel of the attention.
PADDED_HEADS = 64

# DeepSeek-V4-Flash as its config.json has it, and as the reference campaign served it.
DEEPSEEK_V4_FLASH: Mapping[str, Any] = {
    "model_type": "deepseek_v4",
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "index_topk": 512,
}
DEFAULT_TP = 4
# SGLang forces this page size for the model on sm_120.
DEFAULT_PAGE_SIZE = 256


class GeometryError(ValueError):
    """A model and a parallelism that no decode rank can have."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the kernel is launched with on one rank. page_size is in tokens, topk in entries of the sparse list."""

    heads: int
    tp: int
    head_dim: int = NOPE_DIM + ROPE_DIM
    nope_dim: int = NOPE_DIM
    rope_dim: int = ROPE_DIM
    topk: int = 512
    page_size: int = DEFAULT_PAGE_SIZE

    def __post_init__(self) -> None:
        for name in ("heads", "tp", "topk", "page_size"):
            if getattr(self, name) < 1:
                raise GeometryError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.heads % self.tp:
            raise GeometryError(
                f"{self.heads} attention heads cannot be split over TP {self.tp}; use a divisor of {self.heads}"
            )
        if self.local_heads > MAX_HEADS:
            raise GeometryError(
                f"{self.local_heads} heads on one rank, more than the {MAX_HEADS} these kernels take; raise TP"
            )
        if (self.nope_dim, self.rope_dim) != (NOPE_DIM, ROPE_DIM) or self.head_dim != NOPE_DIM + ROPE_DIM:
            raise GeometryError(
                f"head of {self.nope_dim} + {self.rope_dim} (head_dim {self.head_dim}); the paged FP8 layout holds "
                f"{NOPE_DIM} + {ROPE_DIM} only"
            )

    @property
    def local_heads(self) -> int:
        """Query heads of one rank."""
        return self.heads // self.tp

    @property
    def block_h(self) -> int:
        """Heads one program of a head-blocked kernel covers: min(32, local heads), a power of two as tiles must be."""
        return min(MAX_BLOCK_H, 1 << (self.local_heads - 1).bit_length())

    def padded(self) -> Geometry:
        """What decode is launched with: under TP SGLang fills a rank's heads up to 64, or to all of them.

        Source: models/deepseek_v4.py of SGLang 0.5.17, for every batch; 0.5.23 up to 64 rows where Triton is selected.
        """
        if self.tp == 1:
            return self
        return replace(self, heads=PADDED_HEADS if self.local_heads <= PADDED_HEADS else self.heads, tp=1)

    def names(self) -> dict[str, int]:
        """The values a signature file may refer to by name."""
        return {
            "heads": self.local_heads,
            "block_h": self.block_h,
            "head_dim": self.head_dim,
            "nope_dim": self.nope_dim,
            "rope_dim": self.rope_dim,
            "page_size": self.page_size,
            "topk": self.topk,
        }

    def __str__(self) -> str:
        return self.told()

    def told(self, own_heads: bool = False) -> str:
        """In words, with what becomes of heads that are padded. own_heads: the kernel in question leaves those out."""
        own = f"{self.heads} heads / TP {self.tp} = {self.local_heads} local heads, block_h {self.block_h}"
        there = self.padded()
        if there.local_heads == self.local_heads:
            return own
        if own_heads:
            return f"{own} (of the {there.local_heads} that SGLang pads them to, the kernel attends to these)"
        split, rest = divmod(self.heads, there.local_heads)
        how = "" if rest else f": see --tp {split}"
        return f"{own} (SGLang launches decode for {there.local_heads}, block_h {there.block_h}{how})"


def geometry_of(config: Mapping[str, Any], tp: int = DEFAULT_TP, page_size: int = DEFAULT_PAGE_SIZE) -> Geometry:
    """Geometry of a model's config.json mapping; GeometryError names the field that is missing or cannot be served."""
    config = config.get("text_config", config)
    kv_heads = config.get("num_key_value_heads", 1)
    if kv_heads != 1:
        raise GeometryError(f"num_key_value_heads is {kv_heads}; multi-head latent attention has one")
    heads, rope = _count(config, "num_attention_heads"), _count(config, "qk_rope_head_dim")
    if "qk_nope_head_dim" in config:
        nope = _count(config, "qk_nope_head_dim")
        head_dim = _count(config, "head_dim") if "head_dim" in config else nope + rope
    else:
        head_dim = _count(config, "head_dim")
        nope = head_dim - rope
    return Geometry(heads, tp, head_dim, nope, rope, _count(config, "index_topk"), page_size)


def read_geometry(path: Path, tp: int = DEFAULT_TP, page_size: int = DEFAULT_PAGE_SIZE) -> Geometry:
    """Geometry of the config.json at `path`, or in the model folder `path`."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise GeometryError(f"cannot read model config {file}: {error}") from error
    if not isinstance(config, dict):
        raise GeometryError(f"model config {file} is not a JSON object")
    return geometry_of(config, tp, page_size)


def default_geometry() -> Geometry:
    """DeepSeek-V4-Flash at attention TP 4: 16 local heads."""
    return geometry_of(DEEPSEEK_V4_FLASH)


def _count(config: Mapping[str, Any], field: str) -> int:
    value = config.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise GeometryError(f"model config has {field} = {value!r}; a whole number of at least 1 is needed")
    return value
