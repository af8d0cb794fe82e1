"""Attention of one piece, with the statistics that let pieces be added up, and its backward.

Softmax over several sets of keys is the mean of each set's, weighted by the sums of its exponentials. The kernels give
the logarithms of these sums; weights and sums are kept in fp32 (Ring Attention, arXiv 2310.01889 §3.1). The backward of
a piece, given the output and the statistics of all of them, is that piece's part of the whole gradient.

Which kernel: on CPUs PyTorch's flash attention for them; on GPUs FlashAttention, or where it cannot (fp32, masks), the
memory-efficient one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from heddle.parallel.context.pieces import AttentionPiece

aten: Any = torch.ops.aten


class Sides(NamedTuple):
    """What a piece takes of queries, keys and values, and what it may not look at."""

    q: Tensor
    k: Tensor
    v: Tensor
    causal: bool
    mask: Tensor | None  # added to scores


class MergedAttention:
    """The output of some queries, over the pieces so far."""

    def __init__(self, q: Tensor) -> None:
        full = torch.promote_types(q.dtype, torch.float32)
        samples, heads, tokens, size = q.shape
        # token by token, as the product behind attention reads it
        self.out = torch.zeros(samples, tokens, heads, size, dtype=full, device=q.device).transpose(1, 2)
        self.logs = torch.full(q.shape[:-1], -torch.inf, dtype=full, device=q.device)

    def add(self, piece: AttentionPiece, q: Tensor, k: Tensor, v: Tensor) -> None:
        """What the piece's queries find among its keys."""
        found, logs = _forward(_sides(piece, q, k, v))
        out, before = (x[piece.samples, :, piece.queries] for x in (self.out, self.logs))
        sums = torch.logaddexp(before, logs)
        out.mul_((before - sums).exp_()[..., None]).addcmul_(found.to(out.dtype), (logs - sums).exp_()[..., None])
        before.copy_(sums)


class Gradients:
    """The gradients of queries, over the pieces so far; those of keys and values go to whoever holds them."""

    def __init__(self, q: Tensor, out: Tensor, logs: Tensor, gradient: Tensor) -> None:
        self.q, self.out, self.logs, self.gradient = q, out, logs, gradient
        self.of_q = torch.zeros(q.shape, dtype=logs.dtype, device=q.device)

    def add(self, piece: AttentionPiece, kv: Tensor, of_kv: Tensor) -> None:
        """The piece's part: keys and values lie in one tensor, and so do their gradients, in full precision."""
        rows = piece.samples, slice(None), piece.queries
        gradient, out, logs = (x[rows] for x in (self.gradient, self.out, self.logs))
        of_q, of_k, of_v = _backward(_sides(piece, self.q, *kv), gradient, out, logs)
        self.of_q[rows] += of_q
        of_kv[0, piece.samples, :, piece.keys] += of_k
        of_kv[1, piece.samples, :, piece.keys] += of_v


def _sides(piece: AttentionPiece, q: Tensor, k: Tensor, v: Tensor) -> Sides:
    q = q[piece.samples, :, piece.queries]
    k, v = (x[piece.samples, :, piece.keys] for x in (k, v))
    return Sides(q, k, v, piece.causal, None if piece.window is None else _mask(q, k, *piece.window))


def _mask(q: Tensor, k: Tensor, behind: int, window: int) -> Tensor:
    """Minus infinity at keys that lie after their query, or too far before it."""
    back = torch.arange(q.shape[2], device=q.device)[:, None] + behind - torch.arange(k.shape[2], device=q.device)
    return torch.zeros_like(back, dtype=q.dtype).masked_fill_((back < 0) | (back >= window), -torch.inf)


def _forward(sides: Sides) -> tuple[Tensor, Tensor]:
    q, k, v, causal, mask = sides
    if q.device.type == "cpu":
        found, logs = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=mask)
    elif _flash(sides):
        found, logs = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
    else:
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        bias = None if mask is None else _aligned(mask).expand(*q.shape[:2], -1, -1)
        found, logs = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, causal)[:2]
        logs = logs[:, :, : q.shape[2]]  # it pads them
    return found, logs


def _backward(sides: Sides, gradient: Tensor, out: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, causal, mask = sides
    if q.device.type == "cpu":
        made = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, q, k, v, out, logs.contiguous(), 0.0, causal, attn_mask=mask
        )
        return made[0], made[1], made[2]
    none = torch.empty(0, dtype=torch.int64, device=q.device)
    if _flash(sides):
        made = aten._scaled_dot_product_flash_attention_backward(
            gradient, q, k, v, out, logs.contiguous(), None, None, q.shape[2], k.shape[2], 0.0, causal, none, none
        )
        return made[0], made[1], made[2]
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    bias = None if mask is None else _aligned(mask).expand(*q.shape[:2], -1, -1)
    padded = torch.nn.functional.pad(logs, (0, -logs.shape[2] % 32)).contiguous()
    made = aten._scaled_dot_product_efficient_attention_backward(
        gradient, q, k, v, bias, out, padded, none, none, 0.0, (True, True, True, False), causal
    )
    of_k, of_v = (x.unflatten(1, (heads, group)).sum(2) for x in made[1:3])
    return made[0], of_k, of_v


def _flash(sides: Sides) -> bool:
    """Whether FlashAttention can."""
    return sides.mask is None and sides.q.dtype in (torch.bfloat16, torch.float16)


def _aligned(mask: Tensor) -> Tensor:
    """Rows of a mask start where the memory-efficient kernel can load them at once: at multiples of 16 bytes."""
    columns = mask.shape[1]
    return torch.nn.functional.pad(mask, (0, -columns % 16))[:, :columns]
