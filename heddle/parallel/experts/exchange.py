"""Whole experts on each rank of an axis: every token travels to those that it chose, and what they made comes back.

Rows leave sorted by expert, and so by rank. What arrives from the others is sorted by expert once more, computed as on
one device, and goes back the way it came: whoever sent a row gets its result at the same place, and adds up in the
order in which the router chose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from heddle.models.experts import Experts
from heddle.parallel.collectives import start_all_to_all
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import split_parameter

Compute = Callable[[Tensor, Tensor], Tensor]


def share_experts(experts: Experts, axis: Axis) -> None:
    """Keep this rank's experts, and let the rows of the others' travel."""
    split = partial(split_parameter, dim=0, rank=axis.rank, size=axis.size, axis="expert")
    experts.gate, experts.up, experts.down = split(experts.gate), split(experts.up), split(experts.down)
    exchanged = partial(compute_where_held, experts.compute, axis)
    experts.compute = torch.compiler.disable(exchanged)  # type: ignore[method-assign]


def compute_where_held(compute: Compute, axis: Axis, rows: Tensor, counts: Tensor) -> Tensor:
    """What experts make of rows that are sorted by expert, each where it is held; `counts`: rows of every expert."""
    leaving = counts.view(axis.size, -1)  # of each rank, rows for each of its experts
    arriving = start_all_to_all(leaving, axis).wait()  # from each rank, rows for each expert held here
    sizes = RowSizes.read(leaving, arriving, len(rows))
    arrived = _Exchange.apply(rows, axis, sizes)
    order = _by_expert(arriving, sum(sizes.receives))
    made = compute(arrived.index_select(0, order), arriving.sum(0))
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    returned: Tensor = _Exchange.apply(made.index_select(0, back), axis, RowSizes(sizes.receives, sizes.sends))
    return returned


class RowSizes(NamedTuple):
    """Rows that go to each rank, and that come from each."""

    sends: list[int]
    receives: list[int]

    @classmethod
    def read(cls, leaving: Tensor, arriving: Tensor, rows: int) -> RowSizes:
        """From the device: an exchange has to be told the sizes of its parts, so the host waits for them."""
        if isinstance(leaving, FakeTensor):  # a dry run, in which the router spreads tokens evenly
            ranks = len(leaving)
            even = [rows * (rank + 1) // ranks - rows * rank // ranks for rank in range(ranks)]
            return cls(even, even)
        return cls(*torch.stack((leaving.sum(1), arriving.sum(1))).tolist())


def _by_expert(arriving: Tensor, rows: int) -> Tensor:
    """Which of the rows, in which they came rank by rank, is first, second … when they are sorted by expert."""
    ranks, experts = arriving.shape
    numbers = torch.arange(experts, device=arriving.device).repeat(ranks)
    return numbers.repeat_interleave(arriving.flatten(), output_size=rows).argsort(stable=True)


class _Exchange(torch.autograd.Function):
    """So many rows to and from each rank; back, their gradients go the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, sizes: RowSizes) -> Tensor:
        ctx.axis, ctx.sizes = axis, sizes
        return start_all_to_all(x, axis, *sizes).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        sends, receives = ctx.sizes
        return start_all_to_all(gradients[0], ctx.axis, receives, sends).wait(), None, None
