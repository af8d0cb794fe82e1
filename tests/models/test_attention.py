"""Attention against a plain second implementation, and the memory that it takes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from heddle.models.attention import BLOCK, attend
from heddle.models.scored_attention import attend_scored
from heddle.training.dry_run.observe import Living


def plain(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """All scores, written out."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys = q.shape[2], k.shape[2]
    back = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    hidden = (back < 0) | (back >= (window or keys))
    scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def inputs(queries: int, keys: int, heads: int = 4, kv_heads: int = 2, size: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, queries, size), *2 * [(2, kv_heads, keys, size)]]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(
    ("queries", "keys", "window"),
    [
        (24, 24, None),
        (24, 24, 5),
        (300, 300, 5),  # blocks longer than the window, the last one not full
        (300, 300, BLOCK),
        (3 * BLOCK, 3 * BLOCK, BLOCK + 7),  # too long for blocks
        (300, 300, 100),
        (400, 400, 200),
        (300, 300, 299),
        (300, 300, 300),
        (1, 300, None),
        (1, 300, 7),
        (1, 3, 7),
        (5, 300, None),
        (5, 300, 7),
    ],
)
def test_attention_equals_all_scores_written_out(queries, keys, window, kv_heads):
    ours, theirs = inputs(queries, keys, kv_heads=kv_heads), inputs(queries, keys, kv_heads=kv_heads)
    y, expected = attend(*ours, window), plain(*theirs, window)  # type: ignore[call-arg]
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y.backward(gradient)
    expected.backward(gradient)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [100, 256])
def test_a_short_window_needs_no_scores_of_all_queries_with_all_keys(window):
    """Forward and backward, by PyTorch's plain kernel, whose every tensor is seen; fused ones take less still."""
    length, heads = 2048, 8
    q, k, v = inputs(length, length, heads=heads)
    with sdpa_kernel(SDPBackend.MATH), Living() as living:
        attend(q, k, v, window).sum().backward()
    scores = 2 * heads * length * length * 4  # bytes, for 2 samples; written out, three times that lives at once
    assert living.most < scores / 1.2


@pytest.mark.parametrize(("queries", "window"), [(2048, None), (2048, 100), (2048, 1500), (5, None), (1, 100)])
def test_no_kernel_is_asked_for_a_mask_and_for_groups(queries, window, monkeypatch):
    """On GPUs only the plain kernel, which holds all scores, takes both."""
    asked = []
    kernel = F.scaled_dot_product_attention

    def spy(*arguments, attn_mask=None, is_causal=False, enable_gqa=False, scale=None):
        asked.append(attn_mask is not None and enable_gqa)
        return kernel(*arguments, attn_mask=attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    attend(*inputs(queries, 2048), window)  # type: ignore[call-arg]
    assert asked
    assert not any(asked)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("cap", [0.0, 2.0])
@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(24, 24, None), (150, 150, None), (150, 150, 9), (150, 150, 100), (70, 150, 40)]
)
def test_changed_scores_are_those_written_out(queries, keys, window, cap, sinks):
    """Block by block, forward and backward; values may be of another size than queries."""
    q, k, _ = inputs(queries, keys)
    v = torch.randn(2, 2, keys, 6, requires_grad=True)
    nothing = torch.randn(4, requires_grad=True) if sinks else None
    back = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) * 0.3
    scores = torch.tanh(scores / cap) * cap if cap else scores
    scores = scores.masked_fill((back < 0) | (back >= (window or keys)), -torch.inf)
    if nothing is not None:
        scores = torch.cat([scores, nothing.view(1, -1, 1, 1).expand(2, 4, queries, 1)], dim=3)
    expected = scores.softmax(-1)[..., :keys] @ v.repeat_interleave(2, 1)
    found = attend_scored(q, k, v, 0.3, window, cap, nothing)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    gradient = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    learned = [q, k, v, *([] if nothing is None else [nothing])]
    for one, other in zip(*(torch.autograd.grad(y, learned, gradient) for y in (found, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
