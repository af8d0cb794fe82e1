"""Whole experts on each rank of an axis: every token travels to those that it chose, and what they made comes back.

Rows leave sorted by expert, and so by rank. What arrives from the others is sorted by expert once more, computed as on
one device, and goes back the way it came: whoever sent a row gets its result at the same place, and adds up in the
order in which the router chose.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from heddle.models.experts import Beside, Experts
from heddle.parallel.collectives import Handle, start_all_to_all
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import split_parameter


def share_experts(experts: Experts, axis: Axis) -> None:
    """Keep this rank's experts, and let the rows of the others' travel."""
    split = partial(split_parameter, dim=0, rank=axis.rank, size=axis.size, axis="expert")
    for name, parameter in list(experts.named_parameters(recurse=False)):
        setattr(experts, name, split(parameter))
    if axis.size == 1:  # all of them; but ranks that hold the same are others than those of the rest of the model
        return
    exchanged = partial(compute_where_held, experts, axis)
    experts.dispatch = torch.compiler.disable(exchanged)  # type: ignore[method-assign]


def compute_where_held(
    experts: Experts, axis: Axis, rows: Tensor, counts: Tensor, beside: Beside
) -> tuple[Tensor, Tensor | None]:
    """What experts make of rows that are sorted by expert, each where it is held; `counts`: rows of every expert.

    While rows travel, `beside` is computed; and while their gradients do, its gradients are: autograd goes back through
    what was called last first.
    """
    leaving = counts.view(axis.size, -1)  # of each rank, rows for each of its experts
    arriving = start_all_to_all(leaving, axis).wait()  # from each rank, rows for each expert held here
    sizes = RowSizes.read(leaving, arriving, len(rows))
    journey = Journey(axis, sizes)
    under_way = _Leave.apply(rows, journey)
    extra = beside()
    arrived = _Arrive.apply(under_way, journey)
    order = _by_expert(arriving, sum(sizes.receives))
    made = experts.compute(arrived.index_select(0, order), arriving.sum(0))
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    home = Journey(axis, RowSizes(sizes.receives, sizes.sends))
    returned: Tensor = _Arrive.apply(_Leave.apply(made.index_select(0, back), home), home)
    return returned, extra


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


class Journey:
    """Rows on their way from every rank to every other, or their gradients on the way back."""

    def __init__(self, axis: Axis, sizes: RowSizes) -> None:
        self.axis, self.sizes = axis, sizes
        self.handle: Handle | None = None

    def start(self, x: Tensor, back: bool = False) -> Tensor:
        """Where they will be; nothing is there yet."""
        sends, receives = reversed(self.sizes) if back else self.sizes
        self.handle = start_all_to_all(x, self.axis, sends, receives)
        return self.handle.result

    def wait(self) -> Tensor:
        """Them, once they are."""
        assert self.handle is not None
        handle, self.handle = self.handle, None
        return handle.wait()


class _Leave(torch.autograd.Function):
    """So many rows to and from each rank, on their way; back, their gradients have arrived."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, journey: Journey) -> Tensor:
        ctx.journey = journey
        return journey.start(x)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.journey.wait(), None


class _Arrive(torch.autograd.Function):
    """The same rows, there; back, their gradients leave, of which `_Leave` knows, whatever autograd hands on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, journey: Journey) -> Tensor:
        ctx.journey = journey
        journey.wait()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.journey.start(gradients[0], back=True)
        return gradients[0], None
