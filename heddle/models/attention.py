"""Causal attention, with a window or without, by kernels that never hold all scores.

PyTorch's fused kernels take grouped queries, or a mask, but not both; with both it computes scores of all queries with
all keys, for every head. So a mask always comes with keys and values repeated for their groups, and a window that is
short beside the sequence needs no mask over it: queries are cut into blocks that see their own keys and the previous
block's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from heddle.models.documents import Documents

BLOCK = 64  # queries that are computed together at least; smaller ones would leave a kernel idle


def attend(
    q: Tensor, k: Tensor, v: Tensor, window: int | None, documents: Documents = (), scale: float | None = None
) -> Tensor:
    """softmax(scale · q kᵀ) v of [batch, heads, sequence, head size], looking back only, no further than the window.

    Queries are the newest of the keys; a group of successive query heads shares a key/value head. Where samples are
    made of `documents`, each attends within itself. The scale is 1/√size unless another is given.
    """
    if documents:
        return by_document(partial(attend, window=window, scale=scale), q, k, v, documents)
    queries, keys = q.shape[2], k.shape[2]
    if queries == 1 and window is not None:
        k, v, window = k[:, :, -window:], v[:, :, -window:], None
    limit = window if window is not None and window < keys else keys
    block = max(limit, BLOCK)
    if limit < keys and queries == keys and 2 * block <= keys:
        return _banded(q, k, v, limit, block, scale)
    if limit < keys or 1 < queries < keys:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mask = window_mask(queries, keys, limit, q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    # a single query, the newest token, looks at everything
    grouped = q.shape[1] > k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1, scale=scale, enable_gqa=grouped)


def attend_masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """The same where the mask, added to scores, says what is seen."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=q.shape[1] > k.shape[1])


def by_document(core: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> Tensor:
    """One after the other: nothing is computed that a mask would hide, and short documents need little memory."""
    samples = []
    for *sample, lengths in zip(q.split(1), k.split(1), v.split(1), documents, strict=True):
        queries, keys, values = (x.split(lengths, dim=2) for x in sample)
        found = [core(*each) for each in zip(queries, keys, values, strict=True)]
        samples.append(torch.cat(found, dim=2))
    return torch.cat(samples)


def window_mask(queries: int, keys: int, window: int, device: torch.device) -> Tensor:
    """Which keys each query sees, [queries, keys]."""
    place = torch.arange(keys, device=device)
    back = place[keys - queries :, None] - place  # how far back each key lies from each query
    return (back >= 0) & (back < window)


def _banded(q: Tensor, k: Tensor, v: Tensor, window: int, block: int, scale: float | None) -> Tensor:
    """Attention of blocks at least as long as the window: each sees itself and the one before, by the same mask."""
    (batch, heads, length, size), kv_heads = q.shape, k.shape[1]
    padding = -length % block  # at the end, where no real query sees it

    def blocks(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, block)).transpose(1, 2)  # [batch, block, heads, …]

    def repeated(x: Tensor) -> Tensor:
        shape = (*x.shape[:3], heads // kv_heads, *x.shape[3:])
        return x.unsqueeze(3).expand(shape)  # [batch, block, key/value heads, group, …], no memory yet

    def with_previous(x: Tensor) -> Tensor:
        pairs = torch.cat((repeated(x[:, :-1]), repeated(x[:, 1:])), dim=4)
        return pairs.flatten(2, 3).flatten(0, 1)

    q, k, v = blocks(q), blocks(k), blocks(v)
    mask = window_mask(block, 2 * block, window, q.device)
    first = F.scaled_dot_product_attention(
        q[:, 0], repeated(k[:, :1]).flatten(0, 1).flatten(1, 2), repeated(v[:, :1]).flatten(0, 1).flatten(1, 2),
        attn_mask=mask[:, block:], scale=scale,
    )  # fmt: skip
    others = F.scaled_dot_product_attention(
        q[:, 1:].flatten(0, 1), with_previous(k), with_previous(v), attn_mask=mask, scale=scale
    )
    whole = torch.cat((first[:, None], others.view(batch, -1, heads, block, size)), dim=1)
    return whole.transpose(1, 2).flatten(2, 3)[:, :, :length]
