"""ZeRO-2 and ZeRO-3: each replica keeps a share of a layer's weights, and of the gradients as they are made.

Before a layer computes, its weights are gathered from the replicas' shares; ZeRO-2 keeps them until the last backward
of the step, over all microbatches in flight, ZeRO-3 only while the layer computes, and gathers them again for the
backward pass. As soon as a backward has given all gradients of a layer, they are summed, and each replica adds its
share of the sum to that of the microbatches before.

A share of weights is its own fp32 master, and its gradient is beside it. Where the optimizer's state lives on a tier,
masters and gradients live there, too: the device has the share in the precision that it computes with, and gradients
leave as they are made (ZeRO-Offload, arXiv 2101.06840 §4).

What autograd saved of a weight is its memory, not its values: memory that was given back and is filled again with the
same values is as if it had stayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from heddle.parallel.collectives import (
    Handle,
    all_reduce,
    slice_of,
    start_all_reduce,
    start_reduce_scatter_in_place,
    start_sharing,
)
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.ownership import shares_of
from heddle.parallel.replicas.bucket import laid_out, places_in
from heddle.parallel.replicas.shard_memory import ShardMemory
from heddle.parallel.shards import Piece, frozen_piece, landed, make_piece

Named = list[tuple[str, nn.Parameter]]


class Pending:
    """The sum of gradients that is under way on this rank: one at a time, so that their buffers do not add up."""

    def __init__(self) -> None:
        self.collect: Callable[[], None] | None = None

    def put(self, collect: Callable[[], None] | None) -> None:
        """Finish the one before, and remember this one."""
        before, self.collect = self.collect, collect
        if before is not None:
            before()


class ShardedGroup:
    """Parameters of one layer that need the same sums, in one flat buffer that exists while the layer computes."""

    def __init__(
        self,
        parameters: Named,
        replicas: Axis,
        sums: Sequence[Axis],
        mesh: Mesh,
        zero: int,
        memory: ShardMemory,
        pending: Pending,
    ) -> None:
        """`parameters` lie on the meta device; `made` has their successors."""
        replicas, self.mirrors = shares_of(replicas, mesh)
        self.gathers = mesh.gathers if mesh.gathers.ranks == replicas.ranks else replicas
        self.home, self.keeper = memory.home, memory.keeper
        self.names = [name for name, _ in parameters]
        self.sums, self.replicas, self.kept, self.pending = sums, replicas, zero == 2, pending
        sizes = [parameter.numel() for _, parameter in parameters]
        self.starts, self.share = laid_out(sizes, replicas.size, memory.even)
        self.places = places_in(self.starts, sizes, self.share * replicas.rank, self.share * (replicas.rank + 1))
        self.whole = torch.empty(self.share * replicas.size, dtype=memory.dtype, device=memory.device)
        self.made: dict[nn.Parameter, nn.Parameter] = {}
        for start, (_, parameter) in zip(self.starts, parameters, strict=True):
            # `.data`: what is written to the buffer must not count as a change of what autograd saved
            view = self.whole.data[start : start + parameter.numel()].view(parameter.shape)
            self.made[parameter] = nn.Parameter(view, requires_grad=parameter.requires_grad)
            self.made[parameter].__dict__.update(parameter.__dict__)
        self.parameters = list(self.made.values())
        self.resident = True
        self.arriving: Handle | None = None
        self.brought: list[Any] = []  # marks behind what has come from a home elsewhere
        self.release()
        # zeros: padding is summed and updated like everything else
        self.shard = self.home.reserve(self.share, self._kept_in(memory))
        self.master = memory.keeper.reserve(self.share) if memory.keeper and memory.apart else self.shard
        self.pieces = list(self._make_pieces(self.names, mesh))
        self.frozen: list[Piece] = []
        self.gradients: Tensor | None = None  # of all replicas' shares, while a backward makes them
        self.gradient: Tensor | None = None  # of this replica's share
        self.away = memory.keeper.reserve(self.share) if memory.keeper else None  # its home where it leaves the device
        self.missing = set(range(len(parameters)))
        self.awaited = 0  # backwards of the step that are still to come
        self.mirroring: Handle | None = None  # the sum of the share over those that hold the same
        for index, parameter in enumerate(self.parameters):
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._arrival(index))

    def _kept_in(self, memory: ShardMemory) -> torch.dtype:
        """The precision of the share of weights."""
        return memory.dtype if memory.apart else torch.float32

    def _make_pieces(self, names: Sequence[str], mesh: Mesh) -> Iterator[Piece]:
        low = self.share * self.replicas.rank
        for begin, name, parameter in zip(self.starts, names, self.parameters, strict=True):
            start, stop = max(low, begin), min(low + self.share, begin + parameter.numel())
            if start < stop:
                own = slice(start - low, stop - low)
                master = self.master[own]
                piece = make_piece(name, parameter, start - begin, stop - begin, mesh, sharded=True, master=master)
                target = None if self.master is self.shard else self.shard[own]
                yield replace(piece, target=target, tier=self.keeper)

    # ------------------------------------------------------------------------------------------------ weights

    def fetch(self) -> None:
        """Begin to gather the weights, unless they are here or on their way."""
        if self.resident or self.arriving is not None:
            return
        _resize(self.whole, self.whole.numel())
        with self.home.beside(self.whole.device) as self.brought:
            # from page-locked host memory the host need not wait: it next writes there after it has read the gradients
            slice_of(self.whole, self.replicas).copy_(self.shard, non_blocking=True)
            self.arriving = start_sharing(self.whole, self.gathers)
        self.home.leave(self.shard)

    def ready(self) -> None:
        """Until the weights are here."""
        self.fetch()
        if self.arriving is not None:
            self.arriving.wait()
            for mark in self.brought:
                mark.hold(self.whole.device)
            self.arriving, self.brought, self.resident = None, [], True

    def release(self) -> None:
        """Give the memory of the weights back."""
        if self.resident:
            _resize(self.whole, 0)
            self.resident = False

    # ---------------------------------------------------------------------------------------------- gradients

    def _arrival(self, index: int) -> Callable[[Tensor], None]:
        start, size = self.starts[index], self.parameters[index].numel()

        def gradient_arrived(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if index not in self.missing:  # another backward: the loss of the one before did not depend on everything
                self._sum()
            if self.gradients is None:
                # not of zeros: all but padding is written, and one more pass over a layer's gradients takes its time
                whole = self.share * self.replicas.size
                self.gradients = torch.empty(whole, dtype=torch.float32, device=parameter.device)
            self.gradients[start : start + size].copy_(parameter.grad.flatten())
            parameter.grad = None
            self.missing.remove(index)
            if not self.missing:
                self._sum()

        return gradient_arrived

    def _sum(self) -> None:
        """All gradients of a backward are here: sum them over the replicas while the backward goes on."""
        assert self.gradients is not None
        for index in self.missing:  # what the loss does not depend on
            start = self.starts[index]
            self.gradients[start : start + self.parameters[index].numel()].zero_()
        handle, self.gradients = start_reduce_scatter_in_place(self.gradients, self.replicas), None
        self.missing = set(range(len(self.parameters)))
        self.awaited -= 1
        if not self.awaited or not self.kept:
            self.release()
        last = not self.awaited
        if self.replicas.size == 1:  # nothing is under way
            self._add(handle, last)
        else:
            self.pending.put(lambda: self._add(handle, last))

    def _add(self, handle: Handle, last: bool) -> None:
        share = handle.wait()
        if self.keeper is not None and self.away is not None:
            self.keeper.add(self.away, share, first=self.gradient is None)
            self.gradient = self.away
        elif self.gradient is None:
            self.gradient = share.clone() if self.replicas.size > 1 else share  # a view would keep the whole
        else:
            self.gradient.add_(share)
        if last and self.away is None and self.mirrors.size > 1:
            self.mirroring = start_all_reduce(self.gradient, self.mirrors)

    def expect(self, microbatches: int) -> None:
        """A step of so many backwards begins."""
        self.awaited = microbatches

    def finish(self) -> None:
        """Let the masters see the gradients, which are whole after the sums over other axes."""
        self.pending.put(None)
        if self.gradients is not None:  # the loss does not depend on some of the parameters
            self._sum()
            self.pending.put(None)
        if self.keeper is not None:
            self.keeper.arrive()
        if self.gradient is None:
            self.gradient = (
                torch.zeros(self.share, device=self.whole.device) if self.away is None else self.away.zero_()
            )
        sums = list(self.sums)
        if self.mirrors.size > 1 and self.away is not None:
            sums.append(self.mirrors)
        elif self.mirrors.size > 1:
            (self.mirroring or start_all_reduce(self.gradient, self.mirrors)).wait()
            self.mirroring = None
        if sums:
            # what is summed is the device's, a tier's cannot be
            here = self.gradient if self.away is None else torch.empty_like(self.gradient, device=self.whole.device)
            if here is not self.gradient:
                here.copy_(self.gradient)
            for axis in sums:
                all_reduce(here, axis)
            if here is not self.gradient:
                self.gradient.copy_(here)
        for piece, at in zip(self.pieces, self.places, strict=True):
            piece.master.grad = landed(piece, self.gradient[at : at + piece.master.numel()])

    def clear(self) -> None:
        """Forget the gradients."""
        if self.keeper is not None and self.away is not None:
            self.keeper.leave(self.away)
        self.gradient = None
        for piece in self.pieces:
            piece.master.grad = None


class FrozenGroup(ShardedGroup):
    """The same of parameters that nobody updates: shares in the precision that the device computes with, no gradients.

    They are needed until the gradient of the layer's input is there, which `Gathering` tells.
    """

    def __init__(
        self,
        parameters: Named,
        replicas: Axis,
        sums: Sequence[Axis],
        mesh: Mesh,
        zero: int,
        memory: ShardMemory,
        pending: Pending,
    ) -> None:
        """See the base class. Matrices in four bits are bytes."""
        first = parameters[0][1]
        dtype = memory.dtype if first.is_floating_point() else first.dtype
        super().__init__(parameters, replicas, sums, mesh, zero, replace(memory, keeper=None, dtype=dtype), pending)
        self.missing = set()
        low = self.share * self.replicas.rank
        for begin, (name, _), parameter in zip(self.starts, parameters, self.parameters, strict=True):
            start, stop = max(low, begin), min(low + self.share, begin + parameter.numel())
            if start < stop:
                own = self.shard[start - low : stop - low]
                self.frozen.append(frozen_piece(name, parameter, start - begin, own))

    def _kept_in(self, memory: ShardMemory) -> torch.dtype:
        return memory.dtype

    def _make_pieces(self, names: Sequence[str], mesh: Mesh) -> Iterator[Piece]:  # noqa: ARG002
        return iter(())

    def finish(self) -> None:
        """The first layer's input has no gradient to tell that it is done."""
        self.release()

    def clear(self) -> None:
        """There is nothing to forget."""


def _resize(flat: Tensor, elements: int) -> None:
    size = elements * flat.dtype.itemsize
    if flat.is_cuda and torch.version.hip is not None:  # the operator is left out of builds for AMD's GPUs
        flat.untyped_storage().resize_(size)
        return
    # by an operator rather than on the storage, so that whoever counts memory in the dispatcher sees it
    torch.ops.inductor.resize_storage_bytes_(flat, size)
