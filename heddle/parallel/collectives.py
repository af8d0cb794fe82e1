"""Collectives along one axis of the mesh, plain and differentiable. Slices are of the first dim, the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

from heddle.parallel.mesh import Axis


class Handle:
    """A collective under way: `wait` gives its result."""

    def __init__(
        self, work: dist.Work | None, result: Tensor, *kept: Tensor, kind: str = "", axis: Axis | None = None
    ) -> None:
        self.work, self.result = work, result
        self.kept = kept  # inputs must outlive the communication
        self.kind, self.axis = kind, axis  # for whoever asks what a rank is waiting for
        self.complete: Callable[[], None] | None = None
        if work is not None and axis is not None and axis.watch is not None:
            self.complete = axis.watch(kind, work, max(x.nbytes for x in (result, *kept)))

    def wait(self) -> Tensor:
        """The result, once it is there."""
        if self.work is not None:
            self.work.wait()
            if self.complete is not None:
                self.complete()
        return self.result


def all_reduce(x: Tensor, axis: Axis, op: Any = dist.ReduceOp.SUM) -> Tensor:
    """Sum over the axis, in place."""
    return start_all_reduce(x, axis, op).wait()


def start_all_reduce(x: Tensor, axis: Axis, op: Any = dist.ReduceOp.SUM) -> Handle:
    """Begin to sum over the axis, in place."""
    if axis.size == 1:
        return Handle(None, x)
    return Handle(dist.all_reduce(x, op=op, group=axis.group, async_op=True), x, kind="all-reduce", axis=axis)


def gather(x: Tensor, axis: Axis) -> Tensor:
    """All slices of the axis, one after the other."""
    return start_gather(x, axis).wait()


def start_gather(x: Tensor, axis: Axis) -> Handle:
    """Begin to collect all slices of the axis."""
    if axis.size == 1:
        return Handle(None, x)
    x = x.contiguous()
    out = x.new_empty(axis.size * x.shape[0], *x.shape[1:])
    work = dist.all_gather_single(out, x, group=axis.group, async_op=True)
    return Handle(work, out, x, kind="all-gather", axis=axis)


def reduce_scatter(x: Tensor, axis: Axis) -> Tensor:
    """This rank's slice of the sum over the axis."""
    return start_reduce_scatter(x, axis).wait()


def start_reduce_scatter(x: Tensor, axis: Axis) -> Handle:
    """Begin to sum over the axis and keep a slice."""
    if axis.size == 1:
        return Handle(None, x)
    x = x.contiguous()
    out = x.new_empty(x.shape[0] // axis.size, *x.shape[1:])
    work = dist.reduce_scatter_single(out, x, group=axis.group, async_op=True)
    return Handle(work, out, x, kind="reduce-scatter", axis=axis)


def slice_of(x: Tensor, axis: Axis) -> Tensor:
    """This rank's equal share of the first dim."""
    return x.chunk(axis.size)[axis.rank]


class _SumForward(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: FunctionCtx, x: Tensor, axis: Axis) -> Tensor:
        return all_reduce(x.clone(), axis)

    @staticmethod
    def backward(_ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Slice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return slice_of(x, axis).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gather(gradient, ctx.axis), None


def sum_partial(x: Tensor, axis: Axis) -> Tensor:
    """Sum of what each rank has a part of; every rank then holds the whole, so its gradient is the whole's."""
    return _SumForward.apply(x, axis)


def take_slice(x: Tensor, axis: Axis) -> Tensor:
    """From a tensor that all ranks hold to this rank's slice of it; gradients are gathered on the way back."""
    return _Slice.apply(x, axis)
