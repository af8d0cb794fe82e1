"""Rotary positions: each pair of a head's numbers turns by an angle that grows with the position."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from heddle.models import fused
from heddle.spec.model import ModelSpec, RopeScaling
from heddle.spec.rope import Turns


class Rotary(nn.Module):
    """Cosines and sines of the positions, made when first needed, so that building on the meta device costs nothing."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.kinds = [turns for shape in spec.shapes if (turns := shape.turns) is not None]
        self.tables: dict[Turns, tuple[int, Tensor, Tensor]] = {}  # with the length that they are for

    def forward(self, start: int, stop: int, device: torch.device) -> dict[Turns, tuple[Tensor, Tensor]]:
        """For each kind of layer tables of the positions from start up to stop, [positions, numbers that turn]."""
        return {turns: self.table(turns, start, stop, device) for turns in self.kinds}

    def reach(self, stop: int) -> int:
        """What the tables of a text of that length depend on: if it changes, earlier keys are of no use."""
        scaling = self.spec.rope_scaling
        return _reach(scaling, stop, self.spec.sequence) if any(stretched for _, stretched in self.kinds) else 0

    def table(self, turns: Turns, start: int, stop: int, device: torch.device) -> tuple[Tensor, Tensor]:
        theta, stretched = turns
        scaling = self.spec.rope_scaling if stretched else None
        known = self.tables.get(turns)
        reach = _reach(scaling, stop, self.spec.sequence)
        if known is None or known[0] != reach or len(known[1]) < stop or known[1].device != device:
            length = max(stop, min(2 * stop, self.spec.sequence))  # generation asks for one more each time
            place = torch.arange(length, device=device, dtype=torch.float32)
            turn = frequencies(self.spec.rotated, theta, scaling, reach, self.spec.sequence)
            angle = torch.outer(place, turn.to(device)).repeat(1, 2)
            size = _size(scaling, self.spec.sequence)
            cos, sin = angle.cos(), angle.sin()
            known = self.tables[turns] = (reach, cos, sin) if size == 1 else (reach, cos * size, sin * size)
        return known[1][start:stop], known[2][start:stop]


def _reach(scaling: RopeScaling | None, stop: int, sequence: int) -> int:
    """The length that frequencies are made for, where they depend on it: that of the text so far."""
    if scaling is not None and scaling.kind == "dynamic":
        return max(stop, sequence)
    return int(scaling is not None and scaling.kind == "longrope" and stop > scaling.original_sequence)


def frequencies(size: int, theta: float, scaling: RopeScaling | None, reach: int, sequence: int) -> Tensor:
    """Turns a position makes, by pair: from one radian down to 1 / theta."""
    half = torch.arange(0, size, 2, dtype=torch.float32) / size
    if scaling is None:
        return 1.0 / theta**half
    if scaling.kind == "dynamic":  # the base grows with the text (NTK-aware)
        longer = scaling.factor * reach / sequence - (scaling.factor - 1)
        return 1.0 / (theta * longer ** (size / (size - 2))) ** half
    plain = 1.0 / theta**half
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "yarn":
        return _yarn(plain, scaling, size, theta)
    if scaling.kind == "longrope":
        return plain / torch.tensor(scaling.long_factors if reach else scaling.short_factors)
    return _llama3(plain, scaling)


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3.1: slow turns are slowed by the factor, fast ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    blend = ((scaling.original_sequence / wavelength - low) / (high - low)).clamp(0, 1)
    return blend * plain + (1 - blend) * plain / scaling.factor


def _yarn(plain: Tensor, scaling: RopeScaling, size: int, theta: float) -> Tensor:
    """YaRN (arXiv 2309.00071 §3.2): by how often a pair turns over the original length, kept, slowed or blended."""

    def pair(turns: float) -> float:
        return size * math.log(scaling.original_sequence / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.whole_numbers:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    slowed = ((torch.arange(size // 2, dtype=torch.float32) - low) / (high - low or 0.001)).clamp(0, 1)
    return plain / scaling.factor * slowed + plain * (1 - slowed)


def _size(scaling: RopeScaling | None, sequence: int) -> float:
    """What cosines and sines are multiplied by, so that attention stays as sharp as over the original length."""
    if scaling is None or scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor:
        return scaling.attention_factor
    factor = scaling.factor or sequence / scaling.original_sequence
    if factor <= 1:
        return 1.0
    if scaling.kind == "yarn":  # arXiv 2309.00071 Eq. 22
        return 0.1 * math.log(factor) + 1
    return math.sqrt(1 + math.log(factor) / math.log(scaling.original_sequence))  # LongRoPE, arXiv 2402.13753


def at(rope: tuple[Tensor, Tensor], positions: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rows of both tables for positions that do not simply follow each other, [sequence] or [samples, sequence]."""
    if positions is None:
        return rope
    cos, sin = (table.index_select(0, positions.flatten()).unflatten(0, positions.shape) for table in rope)
    return (cos, sin) if positions.dim() == 1 else (cos[:, None], sin[:, None])


def rotate(x: Tensor, cos: Tensor, sin: Tensor, size: int | None = None, pairs: str = "halves") -> Tensor:
    """Turn the first `size` numbers of [batch, heads, sequence, head size] by its positions.

    Pairs are (i, i + size/2), as in Llama, or neighbors, as in GPT-J.
    """
    if size is not None and size < x.shape[-1]:
        return torch.cat((rotate(x[..., :size], cos, sin, size, pairs), x[..., size:]), dim=-1)
    if pairs == "neighbors":
        half = x.shape[-1] // 2
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = cos[..., :half], sin[..., :half]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).to(x.dtype)
    if (
        cos.dtype == torch.float32
        and x.dim() == 4
        and cos.dim() == 2
        and cos.stride() == sin.stride()
        and fused.usable(x)
    ):
        return fused.Rotate.apply(x, cos, sin)
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)
