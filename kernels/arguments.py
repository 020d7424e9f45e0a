"""What every schedule of the decode kernel is launched with, out of the inputs of one call; for the experiments.

The product's own launch is in its own file, which must stand alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from kernels.sparse_mla_decode import BLOCK_H, Choice, _counters, _device_facts, _pages, _rows


@dataclass(frozen=True, slots=True)
class Call:
    """One call's results and what it is launched with.

    shared: arguments of attention and merge alike; attention: the further ones of attention; tokens: capacity of a row,
    both lists together; slots: programs that the choice wants on the device at a time.
    """

    out: torch.Tensor
    lse: torch.Tensor
    batch: int
    heads: int
    tokens: int
    slots: int
    shared: dict[str, Any]
    attention: dict[str, Any]
    options: dict[str, Any]

    @property
    def head_blocks(self) -> int:
        """Programs over the same tokens."""
        return -(-self.heads // BLOCK_H)

    def partials(self, splits: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Room for `splits` results of each row, and the counters of those that have arrived."""
        device = self.out.device
        return {
            "part_ptr": torch.empty((self.batch, splits, self.heads, 512), dtype=dtype, device=device),
            "part_lse_ptr": torch.empty((self.batch, splits, self.heads), dtype=torch.float32, device=device),
            "arrived_ptr": _counters(device),
        }


def call_of(inputs: dict[str, Any], choice: Choice, out: torch.Tensor | None = None) -> Call:
    """Results and arguments for inputs by the names of sparse_mla_decode; q's last axis has to be dense."""
    q, length, sink = inputs["q"], inputs["topk_length"], inputs["attn_sink"]
    extra_length = inputs["extra_topk_length"]
    batch, _, heads, dim = q.shape
    has_extra = inputs["extra_k_cache"] is not None
    cache, index = _pages(inputs["k_cache"]), _rows(inputs["indices"], batch)
    extra_cache = _pages(inputs["extra_k_cache"]) if has_extra else cache
    extra_index = _rows(inputs["extra_indices"], batch) if has_extra else index
    out = torch.empty((batch, 1, heads, dim), dtype=torch.bfloat16, device=q.device) if out is None else out
    lse = torch.empty((batch, heads, 1), dtype=torch.float32, device=q.device)
    shared = {
        "out_ptr": out,
        "lse_ptr": lse,
        "length_ptr": index if length is None else length,
        "extra_length_ptr": extra_index if extra_length is None else extra_length,
        "sink_ptr": lse if sink is None else sink,
        "topk": index.shape[1],
        "extra_topk": extra_index.shape[1],
        "stride_out_row": out.stride(0),
        "stride_out_head": out.stride(2),
        "stride_lse_row": lse.stride(0),
        "HAS_LENGTH": length is not None,
        "HAS_EXTRA": has_extra,
        "HAS_EXTRA_LENGTH": has_extra and extra_length is not None,
        "HAS_SINK": sink is not None,
        "SINK_IN_LSE": False,
        "EARLY": choice.merge in ("early", "chained"),
    }
    attention = {
        "q_ptr": q,
        "kv_ptr": cache,
        "index_ptr": index,
        "extra_kv_ptr": extra_cache,
        "extra_index_ptr": extra_index,
        "scale_log2e": dim**-0.5 * 1.4426950408889634,
        "page_stride": cache.stride(0),
        "extra_page_stride": extra_cache.stride(0),
        "capacity": cache.shape[0] * cache.shape[1],
        "extra_capacity": extra_cache.shape[0] * extra_cache.shape[1],
        "stride_q_row": q.stride(0),
        "stride_q_head": q.stride(2),
        "stride_index_row": index.stride(0),
        "stride_extra_row": extra_index.stride(0),
        "HEADS": heads,
        "PAGE": cache.shape[1],
        "EXTRA_PAGE": extra_cache.shape[1],
        "FUSED": choice.merge == "fused",
        "CHAINED": choice.merge == "chained",
        "BLOCK_H": BLOCK_H,
    }
    tokens = index.shape[1] + (extra_index.shape[1] if has_extra else 0)
    slots = _device_facts(q.device)[1] * choice.per_sm
    return Call(out, lse, batch, heads, tokens, slots, shared, attention, _options(choice))


def _options(choice: Choice) -> dict[str, Any]:
    options: dict[str, Any] = {
        "BLOCK_T": choice.block_t,
        "num_warps": choice.num_warps,
        "num_stages": choice.num_stages,
    }
    # Triton takes a limit of 0 registers for one.
    options |= {"maxnreg": choice.max_registers} if choice.max_registers else {}
    return options | ({"launch_pdl": True} if choice.merge == "chained" else {})


def at_once(splits: int) -> int:
    """How many partial results a merging program loads before it uses the first."""
    return int(min(triton.next_power_of_2(splits), 16))
