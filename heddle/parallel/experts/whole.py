"""Whole experts on tensor ranks: each sends its own share of the tokens to experts, and none has a slice of one.

Under sequence parallelism a rank has its own tokens already, and nothing is gathered for experts at all. Otherwise all
tensor ranks hold the same tokens: each takes its slice, and what experts made of the slices is gathered. Shared experts
are split as a dense MLP is. (Parallel Folding, arXiv 2504.14960.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from heddle.models.experts import ExpertMLP
from heddle.parallel.collectives import gather, take_slice
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import place_of, set_place


def keep_experts_whole(mlp: ExpertMLP, axis: Axis, sequence: bool, split_shared: Callable[[nn.Module], None]) -> None:
    """Let this tensor rank route its own tokens; `split_shared` splits the shared experts."""
    if mlp.shared is not None:
        split_shared(mlp.shared)
    mlp.apart = True
    mlp.router.slices = axis.rank, axis.size
    if not sequence:
        mlp.enter, mlp.leave = partial(take_slice, axis=axis), partial(_gathered, axis=axis)
    # what sees this rank's tokens only; without sequence parallelism the gate of shared experts sees all
    gate = None if mlp.shared_gate is None or not sequence else mlp.shared_gate.weight
    for parameter in (mlp.router.weight, mlp.router.bias, mlp.router.choice_bias, gate):
        if parameter is not None:
            set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))


def _gathered(x: Tensor, axis: Axis) -> Tensor:
    whole: Tensor = _Gathered.apply(x, axis)
    return whole


class _Gathered(torch.autograd.Function):
    """From each rank's slice to all tokens on every rank, where all go on alike: back, each takes its slice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return gather(x, axis)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].chunk(ctx.axis.size)[ctx.axis.rank].contiguous(), None
