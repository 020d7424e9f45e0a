"""Sparse MLA decode in float64, row by row: what the kernel is compared with. Short on purpose and never optimised."""

from __future__ import annotations

import torch

from kernels.layout import HEAD_DIM, dequantise, unpack


def attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
    *,
    sink_in_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments as sparse_mla_decode; returns out [B, 1, H, 512] and the natural-log LSE [B, H, 1], both float64."""
    batch, _, heads, dim = q.shape
    scale = dim**-0.5 if softmax_scale is None else softmax_scale
    out = torch.zeros((batch, 1, heads, HEAD_DIM), dtype=torch.float64, device=q.device)
    lse = torch.full((batch, heads, 1), -torch.inf, dtype=torch.float64, device=q.device)
    sink = torch.full((heads,), -torch.inf, device=q.device) if attn_sink is None else attn_sink
    sink = sink.double()
    for row in range(batch):
        keys = _keys(k_cache, indices, topk_length, row)
        if extra_k_cache is not None and extra_indices is not None:
            keys = torch.cat([keys, _keys(extra_k_cache, extra_indices, extra_topk_length, row)])
        scores = q[row, 0].double() @ keys.T * scale
        keys_lse = torch.logsumexp(scores, 1)
        whole = torch.logaddexp(keys_lse, sink)
        if len(keys):
            weights = torch.exp(scores - whole[:, None])
            out[row, 0] = torch.where(torch.isposinf(sink)[:, None], 0.0, weights @ keys)
        lse[row, :, 0] = whole if sink_in_lse else keys_lse
    return out, lse


def _keys(cache: torch.Tensor, indices: torch.Tensor, lengths: torch.Tensor | None, row: int) -> torch.Tensor:
    picked = indices[row].flatten()
    if lengths is not None:
        picked = picked[: max(int(lengths[row]), 0)]
    capacity = cache.shape[0] * cache.shape[1]
    picked = picked[(picked >= 0) & (picked < capacity)].long()
    return dequantise(unpack(cache, picked))
