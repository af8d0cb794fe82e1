"""Normalizations: over the hidden size, and of queries and keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.spec.model import ModelSpec


class OffsetRMSNorm(nn.RMSNorm):
    """The weight is what is added to one (Gemma). In full precision: 16 bits near one hold little of it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.normalized_shape, 1 + self.weight.float(), self.eps).to(x.dtype)


class OffsetLayerNorm(nn.LayerNorm):
    """The same of a LayerNorm (Nemotron)."""

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.float()
        return F.layer_norm(x.float(), self.normalized_shape, 1 + self.weight.float(), bias, self.eps).to(x.dtype)


def make_norm(spec: ModelSpec, size: int | None = None, bias: bool | None = None) -> nn.Module:
    """A normalization over the hidden size, or over another."""
    size, affine = size or spec.hidden, spec.norm_weight != "none"
    if spec.norm == "rmsnorm":
        rms = OffsetRMSNorm if spec.norm_weight == "offset" else nn.RMSNorm
        return rms(size, spec.norm_epsilon, elementwise_affine=affine)
    layer = OffsetLayerNorm if spec.norm_weight == "offset" else nn.LayerNorm
    return layer(size, spec.norm_epsilon, affine, bias=spec.norm_biased if bias is None else bias)


def make_head_norm(spec: ModelSpec, heads: int) -> nn.Module:
    """The normalization of queries or of keys, [batch, heads, sequence, head size]."""
    if spec.qk_norm_over == "head":
        return make_norm(spec, spec.head_size, spec.qk_norm_biased)
    return HeadsNorm(spec, heads)


class HeadsNorm(nn.Module):
    """Every head has weights of its own. Each is normalized by itself, or all heads of a token together."""

    def __init__(self, spec: ModelSpec, heads: int) -> None:
        super().__init__()
        self.together, self.centered = spec.qk_norm_over == "all", spec.norm == "layernorm"
        self.size, self.epsilon, self.offset = spec.head_size, spec.norm_epsilon, spec.norm_weight == "offset"
        self.weight = nn.Parameter(torch.empty(heads * spec.head_size)) if spec.norm_weight != "none" else None

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        if self.centered:
            y = y - self.mean(y)
        y = (y * torch.rsqrt(self.mean(y * y) + self.epsilon)).to(x.dtype)
        if self.weight is None:
            return y
        weight = self.weight.view(-1, 1, self.size)
        return y * (1 + weight if self.offset else weight)

    def mean(self, x: Tensor) -> Tensor:
        """Of each head, or of all heads of a token, wherever they are."""
        return x.mean((1, 3), keepdim=True) if self.together else x.mean(3, keepdim=True)
