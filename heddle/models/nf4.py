"""Frozen matrices in four bits: NF4, sixteen values for blocks of 64 numbers (QLoRA, arXiv 2305.14314 §3).

Every row is cut into blocks from its beginning; its last one may be shorter. A block is divided by the largest of its
numbers, and each becomes the nearest of the sixteen. So what a number becomes depends on its own block and on nothing
else: whoever holds a part of the matrix, and of the block, holds the same bits. Where rows are multiples of 64 these
are bitsandbytes' own, without its second quantization.

In memory a row is bytes: the largest number of each block in full precision, then two codes to a byte. A product makes
the numbers anew, forward and backward; they are never kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

BLOCK = 64  # numbers that share a scale
SCALE = 4  # bytes of it
AT_ONCE = 1 << 23  # numbers that are made at a time
# quantiles of a normal distribution, as bitsandbytes has them
VALUES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@dataclass(frozen=True)
class NF4Rows:
    """Which columns of a matrix the rows of a local one have."""

    first: int
    columns: int

    @property
    def blocks(self) -> int:
        """That these columns are part of."""
        return -(-(self.first + self.columns) // BLOCK) - self.first // BLOCK

    @property
    def bytes(self) -> int:
        """Of a row; whole scales fit into it, wherever it begins."""
        return SCALE * self.blocks + -(-self.columns // 8) * 4

    @property
    def begin(self) -> int:
        """Where the first of these blocks begins in the whole matrix."""
        return self.first // BLOCK * BLOCK

    def end(self, columns: int) -> int:
        """Where the last one ends in a matrix of so many columns."""
        return min(columns, self.begin + self.blocks * BLOCK)

    def pack(self, values: Tensor) -> Tensor:
        """Rows of numbers, of whole blocks, as rows of bytes."""
        padded = F.pad(values.float(), (0, self.blocks * BLOCK - values.shape[1])).view(-1, self.blocks, BLOCK)
        largest = padded.abs().amax(2)
        shares = (padded * (1.0 / largest.clamp(min=1e-38))[:, :, None]).clamp_(-1, 1)
        nearest = torch.bucketize(shares, _bounds(values.device), out_int32=True).to(torch.uint8).flatten(1)
        skipped = self.first - self.begin
        codes = nearest[:, skipped : skipped + self.columns]
        codes = F.pad(codes, (0, self.columns % 2))
        packed = torch.zeros(len(values), self.bytes, dtype=torch.uint8, device=values.device)
        packed[:, : SCALE * self.blocks] = largest.view(torch.uint8)
        packed[:, SCALE * self.blocks : SCALE * self.blocks + codes.shape[1] // 2] = codes[:, ::2] << 4 | codes[:, 1::2]
        return packed

    def numbers(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of bytes as rows of numbers; few at a time in full precision."""
        made = torch.empty(len(packed), self.columns, dtype=dtype, device=packed.device)
        step = max(1, AT_ONCE // self.columns)
        for start in range(0, len(packed), step):
            self._fill(made[start : start + step], packed[start : start + step])
        return made

    def _fill(self, made: Tensor, packed: Tensor) -> None:
        scales = packed[:, : SCALE * self.blocks].contiguous().view(torch.float32)
        codes = packed[:, SCALE * self.blocks : SCALE * self.blocks + -(-self.columns // 2)]
        shares = F.embedding(codes.int(), _pairs(packed.device)).flatten(1)[:, : self.columns]
        if self.first % BLOCK == 0 and self.columns % BLOCK == 0:
            blocks = (len(packed), self.blocks, BLOCK)
            torch.mul(shares.view(blocks), scales[:, :, None], out=made.view(blocks))
            return
        places = torch.arange(self.first, self.first + self.columns, device=packed.device) // BLOCK
        torch.mul(shares, scales[:, places - self.first // BLOCK], out=made)


def rounded(values: Tensor) -> Tensor:
    """Whole rows as they come back from four bits, in full precision."""
    layout = NF4Rows(0, values.shape[1])
    return layout.numbers(layout.pack(values), torch.float32)


def quantized_like(weight: Tensor) -> nn.Parameter:
    """A frozen matrix of the same shape in four bits, with nothing in it yet; its type says what it is."""
    layout = NF4Rows(0, weight.shape[1])
    return with_rows(weight.new_empty(weight.shape[0], layout.bytes, dtype=torch.uint8), layout)


def with_rows(packed: Tensor, layout: NF4Rows) -> nn.Parameter:
    """Bytes as a parameter that says which columns they are."""
    parameter = nn.Parameter(packed, requires_grad=False)
    parameter.heddle_nf4 = layout  # type: ignore[attr-defined]
    return parameter


def rows_of(weight: Tensor) -> NF4Rows | None:
    """Which columns a matrix in four bits has; None: it is one of plain numbers."""
    return getattr(weight, "heddle_nf4", None)


def numbers_of(weight: Tensor, layout: NF4Rows | None, dtype: torch.dtype) -> Tensor:
    """A matrix to multiply with, whichever way it is kept."""
    return weight if layout is None else layout.numbers(weight, dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product x weightᵀ + bias, whichever way the weight is kept."""
    if rows_of(weight) is None:
        return F.linear(x, weight, bias)
    made: Tensor = _FrozenProduct.apply(x, weight, bias)
    return made


class _FrozenProduct(torch.autograd.Function):
    """Keeps the bytes, not the numbers that it multiplied with."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.layout = rows_of(weight)
        ctx.save_for_backward(weight)
        return F.linear(x, numbers_of(weight, ctx.layout, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        (weight,) = ctx.saved_tensors
        return gradient @ numbers_of(weight, ctx.layout, gradient.dtype), None, None


@cache
def _pairs(device: torch.device) -> Tensor:
    """The two numbers that each byte stands for."""
    with unset_fake_temporarily():  # a dry run, too, has these
        values = torch.tensor(VALUES)
        pairs = torch.stack([values.repeat_interleave(16), values.repeat(16)], dim=1)
        return pairs.to(device)


@cache
def _bounds(device: torch.device) -> Tensor:
    """Halfway between any two."""
    with unset_fake_temporarily():
        values = torch.tensor(VALUES)
        return ((values[:-1] + values[1:]) / 2).to(device)
