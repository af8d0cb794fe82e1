"""A bucket: gradients that travel together, as one flat fp32 buffer of which each parameter's gradient is a view.

When the last microbatch has given all gradients of a bucket, its sum over the replicas starts and the backward pass
goes on. With ZeRO-1 each replica receives only its share of the sum, updates that share of the parameters, and the
shares are gathered. Over slow links the sum travels in fewer bits (`compressed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from heddle.parallel.collectives import (
    Handle,
    all_reduce,
    start_all_reduce,
    start_reduce_scatter_in_place,
    start_sharing,
)
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.ownership import shares_of
from heddle.parallel.parameter_layout import WeightSum, place_of, set_sum
from heddle.parallel.replicas.compressed import CompressedSum
from heddle.parallel.replicas.pair_sum import PairSum
from heddle.parallel.shards import Kept, Piece, landed, make_piece
from heddle.spec.network.link_codes import AxisCodes

Named = list[tuple[str, nn.Parameter]]


def laid_out(sizes: Sequence[int], replicas: int, even: int = 1) -> tuple[list[int], int]:
    """Where parameters of these sizes begin in a flat buffer, and what of it is one replica's.

    The last replica's share may end in padding, and so may every parameter where `even` is more than one.
    """
    starts = [0]
    for size in sizes:
        starts.append(-(-(starts[-1] + size) // even) * even)
    return starts[:-1], -(-starts[-1] // (replicas * even)) * even


def places_in(starts: Sequence[int], sizes: Sequence[int], low: int, high: int) -> list[int]:
    """Where those parts of parameters begin that lie between two places of the buffer, from the first on."""
    parts = [(max(low, start), min(high, start + size)) for start, size in zip(starts, sizes, strict=True)]
    return [start - low for start, stop in parts if start < stop]


class Bucket:
    """Some parameters whose gradients travel together.

    `sums` are the axes over which gradients must be summed before the replicas': the tensor axis where each rank
    has only a part of them, the two ends of the pipeline where both hold a tied embedding.
    """

    def __init__(
        self,
        parameters: Named,
        replicas: Axis,
        sums: list[Axis],
        mesh: Mesh,
        zero: int,
        codes: AxisCodes | None,
        even: int = 1,
    ) -> None:
        """`even`: what parameters and shares begin at a multiple of."""
        replicas, self.mirrors = shares_of(replicas, mesh) if zero else (replicas, Axis())
        self.parameters, self.replicas, self.sums, self.zero = parameters, replicas, sums, zero
        sizes = [parameter.numel() for _, parameter in parameters]
        self.starts, self.share = laid_out(sizes, replicas.size, even)
        first = parameters[0][1]
        self.gradients = first.new_zeros(self.share * replicas.size, dtype=torch.float32)
        self.views = [
            self.gradients[start : start + size].view_as(parameter)
            for start, size, (_, parameter) in zip(self.starts, sizes, parameters, strict=True)
        ]
        self.stale = set(range(len(parameters)))  # whose gradient in the buffer is of an earlier step
        self.awaited = 0  # gradients of the step that are still to come
        tied = sums == [mesh.ends] and PairSum.serves(mesh.ends)
        self.pair = PairSum(self.gradients, mesh.ends) if tied else None
        self.summing: Handle | None = None  # of the sum over these two
        self.handle: Handle | None = None  # of the sum over replicas
        self.gathering: Handle | None = None  # of the updated parameters
        self.compressed: CompressedSum | None = None
        if codes is not None:
            self.compressed = CompressedSum(self.gradients, replicas, codes, shared=not zero)
        if zero:
            self._flatten_values(first)
        self.pieces = self._make_pieces(mesh, *self._range(), sharded=bool(zero))
        self.places = places_in(self.starts, sizes, *self._range())
        self.kept = self._make_kept(mesh)
        for index, (_, parameter) in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._arrival(index))
            set_sum(parameter, self._addition(index))

    def _flatten_values(self, first: Tensor) -> None:
        """ZeRO-1 gathers updated parameters in place, so they live in one flat buffer, too."""
        self.values = first.new_zeros(len(self.gradients))
        for start, (_, parameter) in zip(self.starts, self.parameters, strict=True):
            values = self.values[start : start + parameter.numel()]
            values.copy_(parameter.detach().flatten())
            parameter.data = values.view_as(parameter)

    def _make_pieces(self, mesh: Mesh, low: int, high: int, sharded: bool, values: Tensor | None = None) -> list[Piece]:
        """What lies between two places of the flat buffer, or other `values` that belong there."""
        pieces = []
        for begin, (name, parameter) in zip(self.starts, self.parameters, strict=True):
            start, stop = max(low, begin), min(high, begin + parameter.numel())
            if start < stop:
                part = None if values is None else values[start - low : stop - low]
                pieces.append(make_piece(name, parameter, start - begin, stop - begin, mesh, sharded, part))
        return pieces

    def _make_kept(self, mesh: Mesh) -> list[Kept]:
        """What codes could not say yet, which a run that is resumed still has to say."""
        if self.compressed is None:
            return []
        parts = self.compressed.parts.residual.view(-1)
        kept = [
            Kept(piece, "residual", apart=True, summed=True)
            for piece in self._make_pieces(mesh, 0, len(parts), True, parts)
        ]
        if self.compressed.sums is not None:
            low, high = self.replicas.rank * self.share, (self.replicas.rank + 1) * self.share
            sums = self._make_pieces(mesh, low, high, True, self.compressed.sums.residual)
            kept += [Kept(piece, "sum_residual") for piece in sums]
        return kept

    def _range(self) -> tuple[int, int]:
        """What this replica updates of the flat buffer."""
        if not self.zero:
            return 0, len(self.gradients)
        return self.replicas.rank * self.share, (self.replicas.rank + 1) * self.share

    def _arrival(self, index: int) -> Callable[[Tensor], None]:
        view = self.views[index]

        def gradient_arrived(parameter: Tensor) -> None:
            full = parameter.dtype == torch.float32
            if parameter.grad is None:
                assert index not in self.stale  # it was added as it was made; autograd tells of nothing, too
            elif index in self.stale:
                self.stale.remove(index)
                view.copy_(parameter.grad)
                parameter.grad = view if full else None  # autograd adds to a view in place
            elif not full:
                view.add_(parameter.grad)
                parameter.grad = None
            self.awaited -= 1
            if not self.awaited and self.pair is not None:
                self.summing = self.pair.start()
            elif not self.awaited and not self.sums:
                self._start()

        return gradient_arrived

    def _addition(self, index: int) -> WeightSum:
        view = self.views[index]

        def add(product: Callable[[Tensor, bool], None]) -> None:
            first = index in self.stale
            self.stale.discard(index)
            product(view, first)

        return add

    def expect(self, microbatches: int) -> None:
        """So many will give each gradient once, in whatever order: start the sum as soon as all have."""
        self.awaited = microbatches * sum(place_of(parameter).uses for _, parameter in self.parameters)
        if self.pair is not None:
            self.pair.expect()

    def _start(self) -> None:
        if self.compressed is not None:
            self.handle = self.compressed.start()
            return
        begin = start_reduce_scatter_in_place if self.zero else start_all_reduce
        self.handle = begin(self.gradients, self.replicas)

    def begin(self) -> None:
        """All gradients are there: begin with the sum over replicas if nothing has."""
        if self.handle is not None:
            return
        if self.summing is None:
            for index in self.stale:  # what the loss does not depend on
                self.views[index].zero_()
        if self.pair is not None:
            (self.summing or self.pair.start()).wait()
            self.summing = None
        else:
            for axis in self.sums:
                all_reduce(self.gradients, axis)
        self._start()

    def advance(self) -> None:
        """Begin with the second half of a sum in two."""
        assert self.handle is not None
        if self.compressed is not None and not self.zero:
            self.handle.wait()
            self.handle = self.compressed.share()
        elif self.mirrors.size > 1:  # the share is summed among neighbors; now over all of those groups
            self.handle = start_all_reduce(self.handle.wait(), self.mirrors)

    def finish(self) -> None:
        """Wait for the sum, and let the masters see it."""
        self.wait_for_weights()  # of what no forward used; the masters change next
        assert self.handle is not None
        result = self.handle.wait()
        self.handle = None
        if self.compressed is not None and not self.zero:
            result = self.compressed.read(result)
        for piece, at in zip(self.pieces, self.places, strict=True):
            piece.master.grad = landed(piece, result[at : at + piece.master.numel()])

    def clear(self) -> None:
        """Make ready for the gradients of another step, which overwrite these."""
        self.stale = set(range(len(self.parameters)))
        for _, parameter in self.parameters:
            parameter.grad = None

    def start_sharing(self) -> None:
        """After an update under ZeRO-1: begin to give every replica the shares of the others."""
        if self.zero and self.replicas.size > 1:
            self.gathering = start_sharing(self.values, self.replicas)

    def wait_for_weights(self, *_: object) -> None:
        """Wait until the parameters are whole again, if they are still on their way."""
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None
