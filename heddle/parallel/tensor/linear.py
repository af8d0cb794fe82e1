"""Tensor parallelism (Megatron): the columns of one product, the rows of the next, one collective between.

With sequence parallelism (arXiv 2205.05198) the activations between two such pairs are slices of the tokens, and
the all-reduce splits into a reduce-scatter behind the pair and an all-gather before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heddle.models import nf4
from heddle.models.nf4 import numbers_of, rows_of
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
from heddle.parallel.parameter_layout import WeightSum, split_parameter, sum_of
from heddle.parallel.quantized import split_matrix
from heddle.parallel.tensor.adapters import column_adapters, row_adapters
from heddle.parallel.tensor.chunked import gathered_products, summed_product
from heddle.parallel.tensor.deferred import DeferredGradients, DeferredProduct
from heddle.parallel.tensor.products import EXACT, Products


class ColumnParallelLinear(nn.Module):
    """Each rank computes a slice of the outputs from all of the input; one rank alone computes them all."""

    deferred: DeferredGradients | None = None  # where products of weight gradients may be put off
    products: Products = EXACT
    chunks = 1  # of the tokens, whose gather and product go on side by side

    def __init__(self, linear: nn.Linear, axis: Axis, sequence: bool) -> None:
        super().__init__()
        self.axis, self.sequence = axis, sequence
        self.weight, self.bias = linear.weight, linear.bias
        self.adapters = column_adapters(linear, axis, sequence)
        if axis.size > 1:
            self.weight = split_matrix(linear.weight, 0, axis.rank, axis.size)
            self.bias = None if linear.bias is None else split_parameter(linear.bias, 0, axis.rank, axis.size)

    def forward(self, x: Tensor) -> Tensor:
        if self.axis.size == 1 and self.products.exact and not (self.deferred is not None and self.deferred.wanted):
            y = nf4.linear(x, self.weight, self.bias)
            return y if self.adapters is None else self.adapters(x, y)
        return column_parallel((self,), x)[0]


def column_parallel(linears: Sequence[ColumnParallelLinear], x: Tensor) -> tuple[Tensor, ...]:
    """What each of these layers makes of the same input, which travels once for all of them, as does its gradient."""
    parameters = [parameter for linear in linears for parameter in (linear.weight, linear.bias)]
    first, later, values = linears[0], None, parameters
    if first.deferred is not None and first.deferred.wanted and first.weight.requires_grad:
        values = [parameter if parameter is None else parameter.detach() for parameter in parameters]
        later = first.deferred, parameters
    options = first.axis if first.sequence else None, first.axis, first.products, first.chunks
    made: tuple[Tensor, ...] = _ColumnParallel.apply(x, options, later, *values)
    return tuple(
        y if linear.adapters is None else linear.adapters(x, y) for linear, y in zip(linears, made, strict=True)
    )


class RowParallelLinear(nn.Module):
    """Each rank computes a part of every output from its slice of the input; the parts are summed."""

    deferred: DeferredGradients | None = None
    products: Products = EXACT
    chunks = 1

    def __init__(self, linear: nn.Linear, axis: Axis, sequence: bool) -> None:
        super().__init__()
        self.axis, self.sequence = axis, sequence
        self.weight = split_matrix(linear.weight, 1, axis.rank, axis.size)
        self.bias = linear.bias  # added once, after the sum
        self.adapters = row_adapters(linear, axis, sequence)

    def forward(self, x: Tensor) -> Tensor:
        y = self._product(x)
        y = y if self.adapters is None else self.adapters(x, y)
        return y if self.bias is None else y + self.bias

    def _product(self, x: Tensor) -> Tensor:
        options = self.axis, self.sequence, self.products, self.chunks
        if self.deferred is not None and self.deferred.wanted and self.weight.requires_grad:
            later = self.deferred, self.weight
            return _RowParallel.apply(x, self.weight.detach(), options, later)
        return _RowParallel.apply(x, self.weight, options, None)


class _ColumnParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, options: Any, later: Any, *parameters: Any) -> tuple[Tensor, ...]:
        weights, biases = parameters[::2], parameters[1::2]
        ctx.slices, ctx.axis, ctx.products, chunks = options  # over whom x is a slice of the tokens; None: it is whole
        ctx.has_bias = [bias is not None for bias in biases]
        ctx.later = later  # where to put products off, and the parameters whose gradients they are
        learns = later is not None or any(ctx.needs_input_grad[FIRST:])  # frozen weights need no input again
        ctx.save_for_backward(x if learns else None, *weights)  # the slice, not what is gathered from it
        ctx.layouts = [rows_of(weight) for weight in weights]
        ctx.sums = [sum_of(weight) for weight in weights]
        numbers = _numbers(ctx, weights, x.dtype)
        if chunks > 1 and ctx.slices is not None:
            made = gathered_products(x, numbers, ctx.slices, chunks)
            return tuple(y if bias is None else y.add_(bias) for y, bias in zip(made, biases, strict=True))
        full = ctx.products.operand(x, ctx.slices)
        return tuple(ctx.products.forward(full, weight, bias) for weight, bias in zip(numbers, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, *weights = ctx.saved_tensors
        if ctx.later is not None:
            return _ColumnParallel._backward_input(ctx, x, weights, gradients)
        # The input is gathered again while its gradient is computed, and the sum of the input's gradient goes on
        # while the weights' are computed: both collectives hide behind products that do not need them.
        learns = any(ctx.needs_input_grad[FIRST:])  # frozen weights need no input
        gathering = start_gather(x, ctx.slices) if ctx.slices is not None and learns else None
        grad_x = _to_input(ctx.products, gradients, _numbers(ctx, weights, gradients[0].dtype))
        full = gathering.wait() if gathering else x
        summing = start_sum(grad_x, ctx.axis, ctx.slices is not None)
        grads: list[Tensor | None] = []
        for number, (gradient, has_bias) in enumerate(zip(gradients, ctx.has_bias, strict=True)):
            wanted = ctx.needs_input_grad[FIRST + 2 * number :]
            grads.append(_to_weight(ctx.products, gradient, full, ctx.sums[number]) if wanted[0] else None)
            grads.append(gradient.sum(0) if has_bias and wanted[1] else None)
        return summing.wait(), None, None, *grads

    @staticmethod
    def _backward_input(ctx: Any, x: Tensor, weights: list[Tensor], gradients: Sequence[Tensor]) -> tuple[Any, ...]:
        """The input's gradient alone: the weights' are put off, and their input is gathered then."""
        grad_x = _to_input(ctx.products, gradients, _numbers(ctx, weights, gradients[0].dtype))
        summing = start_sum(grad_x, ctx.axis, ctx.slices is not None)
        deferred, parameters = ctx.later
        for parameter, bias, gradient in zip(parameters[::2], parameters[1::2], gradients, strict=True):
            deferred.add(DeferredProduct(parameter, bias, x, gradient, ctx.slices, ctx.products))
        return summing.wait(), None, None, *(None for _ in parameters)


FIRST = 3  # of the inputs, the first weight


def _numbers(ctx: Any, weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Matrices to multiply with, those in four bits made anew."""
    return [numbers_of(weight, layout, dtype) for weight, layout in zip(weights, ctx.layouts, strict=True)]


def _to_weight(products: Products, gradient: Tensor, x: Tensor, summed: WeightSum | None) -> Tensor | None:
    """The gradient of a weight; None where it was added to the sum of all microbatches at once."""
    if summed is None or not products.can_add(x):
        return products.to_weight(gradient, x)
    summed(lambda whole, first: products.add_to_weight(gradient, x, whole, first))
    return None


def _to_input(products: Products, gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """The gradient of an input that several layers share: each adds its own."""
    made: Tensor | None = None
    for gradient, weight in zip(gradients, weights, strict=True):
        made = products.to_input(gradient, weight, made)
    assert made is not None
    return made


def start_sum(x: Tensor, axis: Axis, sequence: bool) -> Handle:
    """Begin to sum what each rank has a part of: to this rank's slice of it, or to all of it everywhere."""
    return (start_reduce_scatter if sequence else start_all_reduce)(x, axis)


class _RowParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, options: Any, later: Any) -> Tensor:
        ctx.axis, ctx.sequence, ctx.products, chunks = options
        ctx.later, ctx.layout, ctx.sum = later, rows_of(weight), sum_of(weight)
        ctx.save_for_backward(x if later is not None or ctx.needs_input_grad[1] else None, weight)
        weight = numbers_of(weight, ctx.layout, x.dtype)
        if chunks > 1 and ctx.axis.size > 1:
            return summed_product(x, weight, ctx.axis, ctx.sequence, chunks)
        y = ctx.products.forward(ctx.products.operand(x, None), weight, None)
        return reduce_scatter(y, ctx.axis) if ctx.sequence else all_reduce(y, ctx.axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        full = gather(gradient, ctx.axis) if ctx.sequence else gradient
        if ctx.later is not None:
            deferred, parameter = ctx.later
            deferred.add(DeferredProduct(parameter, None, x, full, None, ctx.products))
            return ctx.products.to_input(full, weight), None, None, None
        grad_weight = _to_weight(ctx.products, full, x, ctx.sum) if ctx.needs_input_grad[1] else None
        return ctx.products.to_input(full, numbers_of(weight, ctx.layout, full.dtype)), grad_weight, None, None
