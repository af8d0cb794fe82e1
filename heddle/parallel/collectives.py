"""Collectives along one axis of the mesh, plain and differentiable. Slices are of the first dim, the tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import FunctionCtx

from heddle.parallel.mesh import Axis
from heddle.trace.lanes import Collective

MANY = 64  # ranks from which on messages to all of them at once are too many
LARGE = 1 << 19  # bytes of a whole tensor from which on gloo gathers sooner by broadcasts


class Handle:
    """A collective under way: `wait` gives its result."""

    def __init__(
        self,
        works: list[dist.Work],
        result: Tensor,
        *kept: Tensor,
        kind: str = "",
        axis: Axis | None = None,
        finish: Callable[[], object] | None = None,
        overlapped: bool = True,
    ) -> None:
        self.works, self.result = works, result
        self.kept = kept  # inputs must outlive the communication
        self.kind, self.axis = kind, axis  # for whoever asks what a rank is waiting for
        self.finish = finish  # what is left to do here once all has arrived
        self.complete: Callable[[], None] | None = None
        if (works or finish) and axis is not None and axis.watch is not None:
            # what is waited for at once ends when the wait does
            last = works[-1] if works and overlapped else None
            self.complete = axis.watch(kind, last, max(x.nbytes for x in (result, *kept)))

    def wait(self) -> Tensor:
        """The result, once it is there."""
        for work in self.works:
            work.wait()
        if self.finish is not None:
            self.finish()
        if self.complete is not None:
            self.complete()
        return self.result


def all_reduce(x: Tensor, axis: Axis, op: Any = dist.ReduceOp.SUM) -> Tensor:
    """Sum over the axis, in place."""
    return start_all_reduce(x, axis, op, overlapped=False).wait()


def start_all_reduce(x: Tensor, axis: Axis, op: Any = dist.ReduceOp.SUM, overlapped: bool = True) -> Handle:
    """Begin to sum over the axis, in place."""
    if axis.size == 1:
        return Handle([], x)
    work = dist.all_reduce(x, op=op, group=axis.group, async_op=True)
    return Handle([work], x, kind=Collective.ALL_REDUCE, axis=axis, overlapped=overlapped)


def start_sum_numbers(x: Tensor, axis: Axis) -> Handle:
    """Begin to sum a few numbers over the axis, in place; the same bits on all ranks.

    gloo's ring would take a message's delay twice for every rank; sent straight to all, they take it once or twice.
    """
    if axis.size == 1 or axis.size > MANY or dist.get_backend(axis.group) != "gloo":
        return start_all_reduce(x, axis)
    everyone = x.new_empty(axis.size, *x.shape)
    own = x[None].expand_as(everyone).contiguous()
    work = dist.all_to_all_single(everyone, own, group=axis.group, async_op=True)
    finish = partial(torch.sum, everyone, 0, out=x)
    return Handle([work], x, own, everyone, kind=Collective.ALL_REDUCE, axis=axis, finish=finish)


def gather(x: Tensor, axis: Axis) -> Tensor:
    """All slices of the axis, one after the other."""
    return start_gather(x, axis, overlapped=False).wait()


def start_gather(x: Tensor, axis: Axis, overlapped: bool = True) -> Handle:
    """Begin to collect all slices of the axis."""
    if axis.size == 1:
        return Handle([], x)
    out = x.new_empty(axis.size * x.shape[0], *x.shape[1:])
    if _by_broadcasts(out, axis):
        slice_of(out, axis).copy_(x)
        return start_sharing(out, axis, overlapped)
    x = x.contiguous()
    work = dist.all_gather_single(out, x, group=axis.group, async_op=True)
    return Handle([work], out, x, kind=Collective.ALL_GATHER, axis=axis, overlapped=overlapped)


def start_gather_straight(x: Tensor, axis: Axis) -> Handle:
    """Begin to collect all slices of the axis, for slow links: gloo's ring would wait for every one in turn."""
    if axis.size == 1 or dist.get_backend(axis.group) != "gloo":
        return start_gather(x, axis)
    out = x.new_empty(axis.size * x.shape[0], *x.shape[1:])
    slices = list(zip(axis.ranks, out.chunk(axis.size), strict=True))
    mine = slice_of(out, axis)
    mine.copy_(x)
    others = [(rank, part) for rank, part in slices if part.data_ptr() != mine.data_ptr()]
    works = [dist.irecv(part, rank, group=axis.group) for rank, part in others]
    works += [dist.isend(mine, rank, group=axis.group) for rank, _ in others]
    return Handle([work for work in works if work is not None], out, kind=Collective.ALL_GATHER, axis=axis)


def start_sharing(whole: Tensor, axis: Axis, overlapped: bool = True) -> Handle:
    """Begin to collect all slices of the axis in place: each rank's own already lies where it belongs."""
    if axis.size == 1:
        return Handle([], whole)
    if _by_broadcasts(whole, axis):
        slices = zip(axis.ranks, whole.chunk(axis.size), strict=True)
        works = [dist.broadcast(part, src=rank, group=axis.group, async_op=True) for rank, part in slices]
        return Handle(works, whole, kind=Collective.ALL_GATHER, axis=axis, overlapped=overlapped)
    mine = slice_of(whole, axis)
    mine = mine.clone() if dist.get_backend(axis.group) == "gloo" else mine  # NCCL gathers in place
    work = dist.all_gather_single(whole, mine, group=axis.group, async_op=True)
    return Handle([work], whole, mine, kind=Collective.ALL_GATHER, axis=axis, overlapped=overlapped)


def _by_broadcasts(whole: Tensor, axis: Axis) -> bool:
    """Gloo's own all-gather passes every slice through one more buffer, at half the speed of a broadcast."""
    return whole.nbytes >= LARGE and dist.get_backend(axis.group) == "gloo"


def reduce_scatter(x: Tensor, axis: Axis) -> Tensor:
    """This rank's slice of the sum over the axis."""
    return start_reduce_scatter(x, axis, overlapped=False).wait()


def start_reduce_scatter(x: Tensor, axis: Axis, overlapped: bool = True) -> Handle:
    """Begin to sum over the axis and keep a slice."""
    if axis.size == 1:
        return Handle([], x)
    x = x.contiguous()
    out = x.new_empty(x.shape[0] // axis.size, *x.shape[1:])
    if dist.get_backend(axis.group) == "gloo":
        # gloo would sum everything everywhere and then forget most of it
        parts = torch.empty_like(x)
        work = dist.all_to_all_single(parts, x, group=axis.group, async_op=True)
        add_up = partial(torch.sum, parts.view(axis.size, *out.shape), 0, out=out)
        kept = x, parts
        return Handle(
            [work], out, *kept, kind=Collective.REDUCE_SCATTER, axis=axis, finish=add_up, overlapped=overlapped
        )
    work = dist.reduce_scatter_single(out, x, group=axis.group, async_op=True)
    return Handle([work], out, x, kind=Collective.REDUCE_SCATTER, axis=axis, overlapped=overlapped)


def start_reduce_scatter_in_place(x: Tensor, axis: Axis) -> Handle:
    """Begin to sum over the axis and keep a slice, which lies where it belongs; the other slices are used up."""
    if axis.size == 1:
        return Handle([], x)
    mine = slice_of(x, axis)
    if dist.get_backend(axis.group) != "gloo":
        work = dist.reduce_scatter_single(mine, x, group=axis.group, async_op=True)
        return Handle([work], mine, x, kind=Collective.REDUCE_SCATTER, axis=axis)
    # every slice goes straight to its owner: nothing is copied on the way, and hardly any memory is new
    slices = enumerate(x.chunk(axis.size))
    others = [(axis.ranks[number], part) for number, part in slices if number != axis.rank]
    received = x.new_empty(len(others), *mine.shape)
    works = [dist.isend(part, rank, group=axis.group) for rank, part in others]
    works += [dist.irecv(part, rank, group=axis.group) for part, (rank, _) in zip(received, others, strict=True)]

    def add_up() -> None:
        for part in received:
            mine.add_(part)

    return Handle(
        [w for w in works if w is not None], mine, x, received, kind=Collective.REDUCE_SCATTER, axis=axis, finish=add_up
    )


def start_all_to_all(
    x: Tensor,
    axis: Axis,
    sends: list[int] | None = None,
    receives: list[int] | None = None,
    kind: Collective = Collective.ALL_TO_ALL,
) -> Handle:
    """Begin to give each rank of the axis its part of the first dim: equal ones, or so many rows to and from each.

    The turns of a ring go on beside work.
    """
    if axis.size == 1:
        return Handle([], x)
    x = x.contiguous()
    out = x.new_empty(len(x) if receives is None else sum(receives), *x.shape[1:])
    work = dist.all_to_all_single(out, x, receives, sends, group=axis.group, async_op=True)
    return Handle([work], out, x, kind=kind, axis=axis, overlapped=kind == Collective.TURN)


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


class _SumBothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return all_reduce(x.clone(), axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return all_reduce(gradient.clone(), ctx.axis), None


class _Slice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return slice_of(x, axis).clone()  # a view would keep the whole alive

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gather(gradient, ctx.axis), None


class _SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return all_reduce(gradient.clone(), ctx.axis), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return gather(x, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return reduce_scatter(gradient, ctx.axis), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return reduce_scatter(x, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gather(gradient, ctx.axis), None


def to_all(x: Tensor, axis: Axis) -> Tensor:
    """What every rank holds, used by each for a part of the outputs: its gradient is the sum of theirs."""
    return _SumBackward.apply(x, axis)


def to_all_gathered(x: Tensor, axis: Axis) -> Tensor:
    """The same of slices of the tokens: gathered, and the sum of gradients is scattered."""
    return _Gather.apply(x, axis)


def sum_to_slice(x: Tensor, axis: Axis) -> Tensor:
    """This rank's slice of the sum of what each has a part of; gradients are gathered on the way back."""
    return _Scatter.apply(x, axis)


def sum_partial(x: Tensor, axis: Axis) -> Tensor:
    """Sum of what each rank has a part of; every rank then holds the whole, so its gradient is the whole's."""
    return _SumForward.apply(x, axis)


def sum_everywhere(x: Tensor, axis: Axis) -> Tensor:
    """Sum of what each rank has a part of, where each rank goes on with it by itself: gradients are summed, too."""
    return _SumBothWays.apply(x, axis)


def take_slice(x: Tensor, axis: Axis) -> Tensor:
    """From a tensor that all ranks hold to this rank's slice of it; gradients are gathered on the way back."""
    return _Slice.apply(x, axis)
