"""Attention whose scores are changed before the softmax: capped, or with a score for looking at nothing.

No fused kernel of PyTorch does that. So queries go block by block, and a block's scores are forgotten and made again in
the backward pass: never more of them exist than of one block, and most of the keys that it does not see are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heddle.models.attention import window_mask

BLOCK = 64  # queries at a time


@dataclass(frozen=True)
class ScoreChange:
    """What is done to scores."""

    scale: float
    window: int | None
    cap: float  # 0: none

    def blocks(self, queries: int, keys: int) -> Iterator[tuple[slice, slice]]:
        """Some queries after the other, and the keys that they may see."""
        for begin in range(0, queries, BLOCK):
            end = min(begin + BLOCK, queries)
            last = keys - queries + end  # keys from here on are in the future of all
            first = max(0, last - (end - begin) - (self.window or keys) + 1)
            yield slice(begin, end), slice(first, last)

    def of(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
        """The scores of a block in full precision, -inf where a key is not seen; with a cap what tanh made of them."""
        scores = torch.matmul(q, k.transpose(2, 3)).float()
        bent = None
        if self.cap:
            bent = scores.mul_(self.scale / self.cap).tanh_()
            scores = bent * self.cap
        else:
            scores.mul_(self.scale)
        queries, keys = scores.shape[2:]
        if self.window is None:  # all keys but the block's own are seen
            scores[..., keys - queries :].masked_fill_(~window_mask(queries, queries, queries, q.device), -torch.inf)
        else:
            scores.masked_fill_(~window_mask(queries, keys, self.window, q.device), -torch.inf)
        return scores, bent


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
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (k, v))
    if mask is not None or torch.compiler.is_compiling():
        seen = window_mask(q.shape[2], k.shape[2], window or k.shape[2], q.device) if mask is None else mask
        return _all_at_once(q, k, v, seen, sinks, scale, cap)
    found: Tensor = _ScoredAttention.apply(q, k, v, sinks, ScoreChange(scale, window, cap))
    return found


class _ScoredAttention(torch.autograd.Function):
    """Keeps what it was given, and one number for each query: the logarithm of what its shares are divided by."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, change: ScoreChange) -> Tensor:
        out, sums = q.new_empty(*q.shape[:3], v.shape[3]), []
        for own, seen in change.blocks(q.shape[2], k.shape[2]):
            scores, _ = change.of(q[:, :, own], k[:, :, seen])
            total = torch.logsumexp(scores, dim=3, keepdim=True)
            if sinks is not None:
                total = torch.logaddexp(total, sinks.float().view(-1, 1, 1))
            shares = scores.sub_(total).exp_().to(q.dtype)
            out[:, :, own] = torch.matmul(shares, v[:, :, seen])
            sums.append(total)
        ctx.change = change
        ctx.save_for_backward(q, k, v, sinks, torch.cat(sums, dim=2))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        (gradient,), change = gradients, ctx.change
        q, k, v, sinks, sums = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_sinks = None if sinks is None else torch.zeros_like(sinks, dtype=torch.float32)
        for own, seen in change.blocks(q.shape[2], k.shape[2]):
            scores, bent = change.of(q[:, :, own], k[:, :, seen])
            total, arrived = sums[:, :, own], gradient[:, :, own]
            shares = scores.sub_(total).exp_()
            grad_v[:, :, seen] += torch.matmul(shares.to(q.dtype).transpose(2, 3), arrived)
            slope = torch.matmul(arrived, v[:, :, seen].transpose(2, 3)).float()
            mean = torch.linalg.vecdot(shares, slope)[..., None]
            if sinks is not None and grad_sinks is not None:
                grad_sinks -= (torch.exp(sinks.float().view(-1, 1, 1) - total) * mean).sum((0, 2, 3))
            slope = slope.sub_(mean).mul_(shares).mul_(change.scale)
            if bent is not None:  # tanh's own slope: one less its square
                slope.addcmul_(slope, bent.square_(), value=-1)
            slope = slope.to(q.dtype)
            grad_q[:, :, own] = torch.matmul(slope, k[:, :, seen])
            grad_k[:, :, seen] += torch.matmul(slope.transpose(2, 3), q[:, :, own])
        return grad_q, grad_k, grad_v, None if grad_sinks is None else grad_sinks.to(sinks.dtype), None


def _all_at_once(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, sinks: Tensor | None, scale: float, cap: float
) -> Tensor:
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
