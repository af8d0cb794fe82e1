"""The two ends of what tensor ranks compute each a part of, for all tokens: where these come to all, and the sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heddle.parallel.collectives import all_reduce, gather, reduce_scatter
from heddle.parallel.mesh import Axis


def enter_region(x: Tensor, axis: Axis, sequence: bool) -> Tensor:
    """All tokens on every rank; back, the sum of everybody's part of their gradient."""
    entered: Tensor = _Enter.apply(axis, sequence, x)
    return entered


def leave_region(x: Tensor, axis: Axis, sequence: bool) -> Tensor:
    """The sum of everybody's part of all tokens, for this rank's tokens or for all."""
    left: Tensor = _Leave.apply(axis, sequence, x)
    return left


class _Enter(torch.autograd.Function):
    """To all tokens on every rank; back to the sum of everybody's part of their gradient."""

    @staticmethod
    def forward(ctx: Any, axis: Axis, sequence: bool, x: Tensor) -> Tensor:
        ctx.axis, ctx.sequence = axis, sequence
        return gather(x, axis) if sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        (gradient,) = gradients
        summed = reduce_scatter(gradient, ctx.axis) if ctx.sequence else all_reduce(gradient.clone(), ctx.axis)
        return None, None, summed


class _Leave(torch.autograd.Function):
    """From everybody's part of all tokens to the sum, of this rank's tokens or of all."""

    @staticmethod
    def forward(ctx: Any, axis: Axis, sequence: bool, x: Tensor) -> Tensor:
        ctx.axis, ctx.sequence = axis, sequence
        return reduce_scatter(x, axis) if sequence else all_reduce(x.clone(), axis)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        (gradient,) = gradients
        return None, None, gather(gradient, ctx.axis) if ctx.sequence else gradient
