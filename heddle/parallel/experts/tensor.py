"""Experts split over the tensor axis: every rank has a slice of each expert's width, and all tokens.

Between where tokens come to all ranks and where the ranks' parts are summed, every gradient is a part of the whole: of
the tokens, of the router and of the gate. One sum at each end makes the tokens' whole, as in a dense MLP, and the
others are summed with all other gradients.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heddle.models.experts import ExpertMLP
from heddle.models.transformer import GatedMLP
from heddle.parallel.collectives import all_reduce, gather, reduce_scatter
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import place_of, set_place, split_parameter


def split_experts(mlp: ExpertMLP, axis: Axis, sequence: bool) -> None:
    """Columns of each expert's first products, rows of its last."""
    split = partial(split_parameter, rank=axis.rank, size=axis.size)
    experts, shared = mlp.experts, mlp.shared
    experts.gate, experts.up, experts.down = split(experts.gate, 1), split(experts.up, 1), split(experts.down, 2)
    if isinstance(shared, GatedMLP):
        shared.gate.weight, shared.up.weight = split(shared.gate.weight, 0), split(shared.up.weight, 0)
        shared.down.weight = split(shared.down.weight, 1)
    own: list[Tensor] = [mlp.router.weight]
    own += [] if mlp.shared_gate is None else [mlp.shared_gate.weight]
    for parameter in own:
        set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))
    mlp.router.share = 1 / axis.size  # of its losses, which every rank computes
    mlp.enter = partial(_Enter.apply, axis, sequence)
    mlp.leave = partial(_Leave.apply, axis, sequence)


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
