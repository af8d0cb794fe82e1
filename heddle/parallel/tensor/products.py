"""The three products of a linear layer: its output, and on the way back the gradients of its input and its weight.

`Products` computes them in the precision of their operands. `Float8Products` rounds the operands to 8 bits first: e4m3,
with 3 bits behind the point, for activations and weights. An operand is divided by its largest value, one for all of it
or one for every row that is summed over, so that it fills the range. With one scale for all, gradients need a range
that e4m3 does not have: they become e5m2, with 2 bits behind the point (arXiv 2209.05433 §3). Rows have scales of their
own, and their gradients become e4m3, too; these scales are powers of two, so that dividing by them rounds nothing (both
as in torchao's recipes). Sums are in full precision, and what comes out has the precision of what came in.

A GPU that has units for it multiplies 8 bits as they are. Elsewhere the rounded operands are multiplied in full
precision, which holds them exactly: the same numbers, and no faster.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from heddle.parallel.collectives import all_reduce, gather
from heddle.parallel.mesh import Axis
from heddle.spec.job import Float8Scaling

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
ALIGNED = 16  # numbers that dims must be a multiple of where a GPU multiplies 8 bits
LEAST = 2.0**-100  # of a scale: what is all zeros stays so


class Products:
    """As they are."""

    exact = True

    def operand(self, x: Tensor, axis: Axis | None) -> Operand:
        """What a layer's weights are multiplied with: all of the input, of which each rank of an axis has a slice."""
        return Operand(x if axis is None else gather(x, axis), None, x.dtype)

    def forward(self, x: Operand, weight: Tensor, bias: Tensor | None) -> Tensor:
        """X wᵀ, and a bias."""
        return F.linear(x.values, weight, bias)

    def to_input(self, gradient: Tensor, weight: Tensor, add_to: Tensor | None = None) -> Tensor:
        """The gradient of x, or what this weight adds to it."""
        return gradient @ weight if add_to is None else add_to.addmm_(gradient, weight)

    def to_weight(self, gradient: Tensor, x: Tensor) -> Tensor:
        """The gradient of w."""
        return gradient.t() @ x

    def can_add(self, x: Tensor) -> bool:
        """Whether the gradient of w can be added to one in full precision as it is made: GPUs can."""
        return self.exact and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16)

    def add_to_weight(self, gradient: Tensor, x: Tensor, whole: Tensor, first: bool) -> None:
        """Add the gradient of w to that of other microbatches, in fp32; `first`: there are none yet.

        Its sums are in fp32 anyway. Rounded first and added then, it would lose bits, and be written and read once
        more.
        """
        if first:
            torch.ops.aten.mm.dtype_out(gradient.t(), x, torch.float32, out=whole)
        else:
            torch.ops.aten.addmm.dtype_out(whole, gradient.t(), x, torch.float32, out=whole)


class Operand(NamedTuple):
    """One factor of a product: its rows are summed over."""

    values: Tensor
    scale: Tensor | None  # what they were divided by: one number, or one for each row, [rows, 1]; None: nothing
    dtype: torch.dtype  # of what was rounded


class Float8Products(Products):
    """In 8 bits."""

    exact = False

    def __init__(self, scaling: Float8Scaling, native: bool = False) -> None:
        """`native`: the device has units for it."""
        self.by_row, self.native = scaling == "row", native
        self.backward = FORWARD if self.by_row else BACKWARD

    def operand(self, x: Tensor, axis: Axis | None) -> Operand:
        """Rounded before it is sent: half as many bytes as in 16 bits."""
        if axis is None or axis.size == 1:
            return self.rounded(x, FORWARD)
        largest = None if self.by_row else all_reduce(x.abs().amax().float(), axis, dist.ReduceOp.MAX)
        part = self.rounded(x, FORWARD, largest)
        assert part.scale is not None
        values = gather(part.values.view(torch.uint8), axis).view(FORWARD)
        return Operand(values, gather(part.scale, axis) if self.by_row else part.scale, x.dtype)

    def forward(self, x: Operand, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = product(x, self.rounded(weight, FORWARD), self.native)
        return y if bias is None else y + bias

    def to_input(self, gradient: Tensor, weight: Tensor, add_to: Tensor | None = None) -> Tensor:
        made = product(self.rounded(gradient, self.backward), self.rounded(weight.t(), FORWARD), self.native)
        return made if add_to is None else add_to.add_(made)

    def to_weight(self, gradient: Tensor, x: Tensor) -> Tensor:
        return product(self.rounded(gradient.t(), self.backward), self.rounded(x.t(), FORWARD), self.native)

    def rounded(self, x: Tensor, dtype: torch.dtype, largest: Tensor | None = None) -> Operand:
        """An operand in 8 bits, its rows one after the other; `largest`: its largest value, where that is known."""
        if largest is None:
            size = x.abs()
            largest = (size.amax(1, keepdim=True) if self.by_row else size.amax()).float()
        most = torch.finfo(dtype).max
        scale = (largest / most).clamp(min=LEAST)
        if self.by_row:
            scale = scale.log2().ceil().exp2()
        return Operand((x.float() / scale).clamp(-most, most).to(dtype).contiguous(), scale, x.dtype)


def product(a: Operand, b: Operand, native: bool) -> Tensor:
    """A bᵀ, in 8 bits where the device has units for it and the sizes are those that they take."""
    assert a.scale is not None
    assert b.scale is not None
    if native and not any(size % ALIGNED for size in (*a.values.shape, *b.values.shape)):
        return torch._scaled_mm(a.values, b.values.t(), scale_a=a.scale, scale_b=b.scale.t(), out_dtype=a.dtype)
    return (a.values.float() @ b.values.float().t()).mul_(a.scale).mul_(b.scale.t()).to(a.dtype)


EXACT = Products()
