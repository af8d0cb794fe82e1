"""Where the numbers of a local parameter sit in the whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from heddle.models.nf4 import rows_of


@dataclass(frozen=True)
class ParameterLayout:
    """The box that a local parameter is of its global one, and what its gradient needs before it is whole."""

    shape: torch.Size  # of the global parameter
    offset: tuple[int, ...]  # where the box starts
    split: frozenset[str] = frozenset()  # the axes of the mesh whose ranks hold different boxes
    # The axes whose ranks hold the same numbers, but each only a part of their gradient, besides the axes over which
    # every gradient is summed. "ends" are the two ends of the pipeline, where both hold a tied embedding.
    partial: frozenset[str] = frozenset()
    uses: int = 1  # chunks of this rank that add to its gradient, each once for every microbatch

    @property
    def tied(self) -> bool:
        """Whether both ends of the pipeline hold it."""
        return "ends" in self.partial


def set_place(parameter: Tensor, place: ParameterLayout) -> None:
    """Note where a parameter belongs."""
    parameter.heddle_place = place  # type: ignore[attr-defined]


def place_of(parameter: Tensor) -> ParameterLayout:
    """Where a parameter belongs; one that was never split is all of itself."""
    place: ParameterLayout | None = getattr(parameter, "heddle_place", None)
    if place is not None:
        return place
    packed = rows_of(parameter)  # bytes that stand for numbers
    shape = parameter.shape if packed is None else torch.Size((parameter.shape[0], packed.columns))
    return ParameterLayout(shape, (0,) * parameter.dim())


# Takes what adds a product to a gradient: given the gradient of all microbatches so far, and whether there is none yet.
WeightSum = Callable[[Callable[[Tensor, bool], None]], None]


def set_sum(parameter: Tensor, add: WeightSum) -> None:
    """Note who sums a parameter's gradients in full precision, for whoever can add to them at once."""
    parameter.heddle_sum = add  # type: ignore[attr-defined]


def sum_of(parameter: Tensor) -> WeightSum | None:
    """Who sums a parameter's gradients; None where only autograd does."""
    return getattr(parameter, "heddle_sum", None)


def split_parameter(parameter: Tensor, dim: int, rank: int, size: int, axis: str = "tensor") -> nn.Parameter:
    """A parameter of the same kind that is slice `rank` of `size` along `dim`, padded to equal slices.

    Works on the meta device, where nothing has memory yet.
    """
    before = place_of(parameter)
    rows = -(-parameter.shape[dim] // size)
    shape, offset = list(parameter.shape), list(before.offset)
    shape[dim], offset[dim] = rows, offset[dim] + rank * rows
    local = nn.Parameter(parameter.new_empty(shape), requires_grad=parameter.requires_grad)
    set_place(local, replace(before, offset=tuple(offset), split=before.split | {axis}))
    return local
