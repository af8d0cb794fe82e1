"""Tensor parallelism (Megatron): the columns of one product, the rows of the next, one collective between.

With sequence parallelism (arXiv 2205.05198) the activations between two such pairs are slices of the tokens, and
the all-reduce splits into a reduce-scatter behind the pair and an all-gather before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heddle.parallel.collectives import (
    Handle,
    all_reduce,
    gather,
    reduce_scatter,
    start_all_reduce,
    start_gather,
    start_reduce_scatter,
)
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import split_parameter


class ColumnParallelLinear(nn.Module):
    """Each rank computes a slice of the outputs from all of the input."""

    def __init__(self, linear: nn.Linear, axis: Axis, sequence: bool) -> None:
        super().__init__()
        self.axis, self.sequence = axis, sequence
        self.weight = split_parameter(linear.weight, 0, axis.rank, axis.size)
        self.bias = None if linear.bias is None else split_parameter(linear.bias, 0, axis.rank, axis.size)

    def forward(self, x: Tensor) -> Tensor:
        return column_parallel((self,), x)[0]


def column_parallel(linears: Sequence[ColumnParallelLinear], x: Tensor) -> tuple[Tensor, ...]:
    """What each of these layers makes of the same input, which travels once for all of them, as does its gradient."""
    parameters = [parameter for linear in linears for parameter in (linear.weight, linear.bias)]
    return _ColumnParallel.apply(x, linears[0].axis, linears[0].sequence, *parameters)


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
    def forward(ctx: Any, x: Tensor, axis: Axis, sequence: bool, *parameters: Any) -> tuple[Tensor, ...]:
        weights, biases = parameters[::2], parameters[1::2]
        ctx.axis, ctx.sequence, ctx.has_bias = axis, sequence, [bias is not None for bias in biases]
        ctx.save_for_backward(x, *weights)  # the slice, not what is gathered from it
        full = gather(x, axis) if sequence else x
        return tuple(F.linear(full, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        # The input is gathered again while its gradient is computed, and the sum of the input's gradient goes on
        # while the weights' are computed: both collectives hide behind products that do not need them.
        gathering = start_gather(x, ctx.axis) if ctx.sequence else None
        grad_x = gradients[0] @ weights[0]
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            grad_x.addmm_(gradient, weight)
        full = gathering.wait() if gathering else x
        summing = start_sum(grad_x, ctx.axis, ctx.sequence)
        grads: list[Tensor | None] = []
        for number, (gradient, has_bias) in enumerate(zip(gradients, ctx.has_bias, strict=True)):
            grads.append(gradient.t() @ full if ctx.needs_input_grad[3 + 2 * number] else None)
            grads.append(gradient.sum(0) if has_bias else None)
        return summing.wait(), None, None, *grads


def start_sum(x: Tensor, axis: Axis, sequence: bool) -> Handle:
    """Begin to sum what each rank has a part of: to this rank's slice of it, or to all of it everywhere."""
    return (start_reduce_scatter if sequence else start_all_reduce)(x, axis)


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
