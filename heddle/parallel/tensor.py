"""Tensor parallelism (Megatron): the columns of one product, the rows of the next, one collective between.

With sequence parallelism (arXiv 2205.05198) the activations between two such pairs are slices of the tokens, and
the all-reduce splits into a reduce-scatter behind the pair and an all-gather before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from heddle.parallel.collectives import (
    all_reduce,
    gather,
    reduce_scatter,
    start_all_reduce,
    start_gather,
    start_reduce_scatter,
)
from heddle.parallel.mesh import Axis
from heddle.parallel.place import split_parameter


class ColumnParallelLinear(nn.Module):
    """Each rank computes a slice of the outputs from all of the input."""

    def __init__(self, linear: nn.Linear, axis: Axis, sequence: bool) -> None:
        super().__init__()
        self.axis, self.sequence = axis, sequence
        self.weight = split_parameter(linear.weight, 0, axis.rank, axis.size)
        self.bias = None if linear.bias is None else split_parameter(linear.bias, 0, axis.rank, axis.size)

    def forward(self, x: Tensor) -> Tensor:
        return _ColumnParallel.apply(x, self.weight, self.bias, self.axis, self.sequence)


class RowParallelLinear(nn.Module):
    """Each rank computes a part of every output from its slice of the input; the parts are summed."""

    def __init__(self, linear: nn.Linear, axis: Axis, sequence: bool) -> None:
        super().__init__()
        self.axis, self.sequence = axis, sequence
        self.weight = split_parameter(linear.weight, 1, axis.rank, axis.size)
        self.bias = linear.bias  # added once, after the sum

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _RowParallel.apply(x, self.weight, self.axis, self.sequence)
        return y if self.bias is None else y + self.bias


class _ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, axis: Axis, sequence: bool) -> Tensor:
        ctx.axis, ctx.sequence, ctx.has_bias = axis, sequence, bias is not None
        ctx.save_for_backward(x, weight)  # the slice, not what is gathered from it
        full = gather(x, axis) if sequence else x
        return torch.mm(full, weight.t()) if bias is None else torch.addmm(bias, full, weight.t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        # The input is gathered again while its gradient is computed, and the sum of the input's gradient goes on
        # while the weight's is computed: both collectives hide behind a product that does not need them.
        gathering = start_gather(x, ctx.axis) if ctx.sequence else None
        grad_x = gradient @ weight
        full = gathering.wait() if gathering else x
        summing = (start_reduce_scatter if ctx.sequence else start_all_reduce)(grad_x, ctx.axis)
        grad_weight = gradient.t() @ full if ctx.needs_input_grad[1] else None
        grad_bias = gradient.sum(0) if ctx.has_bias else None
        return summing.wait(), grad_weight, grad_bias, None, None


class _RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, axis: Axis, sequence: bool) -> Tensor:
        ctx.axis, ctx.sequence = axis, sequence
        ctx.save_for_backward(x, weight)
        y = torch.mm(x, weight.t())
        return reduce_scatter(y, axis) if sequence else all_reduce(y, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        full = gather(gradient, ctx.axis) if ctx.sequence else gradient
        grad_weight = full.t() @ x if ctx.needs_input_grad[1] else None
        return full @ weight, grad_weight, None, None
