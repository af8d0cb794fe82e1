"""Rotary positions: each pair of a head's numbers turns by an angle that grows with the position."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from heddle.models import fused
from heddle.spec.model import ModelSpec, RopeScaling


class Rotary(nn.Module):
    """Cosines and sines of the positions, made when first needed, so that building on the meta device costs nothing."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.table: tuple[Tensor, Tensor] | None = None

    def forward(self, start: int, stop: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Tables for the positions from start up to stop, [positions, head size]."""
        if self.table is None or len(self.table[0]) < stop or self.table[0].device != device:
            length = max(stop, min(2 * stop, self.spec.sequence))  # generation asks for one more each time
            place = torch.arange(length, device=device, dtype=torch.float32)
            angle = torch.outer(place, frequencies(self.spec).to(device)).repeat(1, 2)
            self.table = angle.cos(), angle.sin()
        cos, sin = self.table
        return cos[start:stop], sin[start:stop]


def frequencies(spec: ModelSpec) -> Tensor:
    """Turns a position makes, by pair: from one radian down to 1 / theta."""
    half = torch.arange(0, spec.head_size, 2, dtype=torch.float32) / spec.head_size
    plain = 1.0 / spec.rope_theta**half
    return plain if spec.rope_scaling is None else _stretched(plain, spec.rope_scaling)


def _stretched(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1: slow turns are slowed by the factor, fast ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    blend = ((scaling.original_sequence / wavelength - low) / (high - low)).clamp(0, 1)
    return blend * plain + (1 - blend) * plain / scaling.factor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [batch, heads, sequence, head size] by its positions; pairs are (i, i + size/2), as in Llama."""
    if cos.dtype == torch.float32 and x.dim() == 4 and cos.stride() == sin.stride() and fused.usable(x):
        return fused.Rotate.apply(x, cos, sin)
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)
