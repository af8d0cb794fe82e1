"""Attention whose scores are changed before the softmax: capped, or with a score for looking at nothing.

No fused kernel of PyTorch does that. So queries go block by block, and a block's scores are forgotten and made again in
the backward pass: never more of them exist than of one block.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from heddle.models.attention import window_mask

BLOCK = 256  # queries at a time


def attend_scored(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int | None = None,
    cap: float = 0.0,
    sinks: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Causal attention of [batch, heads, sequence, head size] as in `attend`, with capped scores, sinks, or both.

    A cap makes of a score cap · tanh(score / cap). A sink is a score of each head for nothing: it takes part in the
    softmax and has no value. A mask, added to scores, replaces causality and window.
    """
    queries, keys = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (k, v))
    parts = []
    for begin in range(0, queries, BLOCK):
        end = min(begin + BLOCK, queries)
        last = keys - queries + end  # keys from here on are in the future of all
        first = max(0, last - (end - begin) - (window or keys) + 1) if mask is None else 0
        if mask is None:
            seen = window_mask(end - begin, last - first, window or keys, q.device)
        else:
            last, seen = keys, mask
        work = partial(_block, scale=scale, cap=cap)
        inputs = q[:, :, begin:end], k[:, :, first:last], v[:, :, first:last], seen, sinks
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            parts.append(checkpoint(work, *inputs, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(work(*inputs))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _block(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, sinks: Tensor | None, scale: float, cap: float) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * scale
    if cap:
        scores = torch.tanh(scores / cap) * cap
    scores = scores.masked_fill(~seen, -torch.inf) if seen.dtype == torch.bool else scores + seen
    scores = scores.float()
    if sinks is not None:
        nothing = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, nothing), dim=3)
    shares = torch.softmax(scores, dim=3)
    return torch.matmul((shares if sinks is None else shares[..., :-1]).to(q.dtype), v)
