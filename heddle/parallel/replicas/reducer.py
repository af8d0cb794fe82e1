"""Data parallelism: gradients summed in buckets while the last backward still runs, optimizer state sharded (ZeRO-1).

A bucket is one flat fp32 buffer; each parameter's gradient is a view into it. When the last microbatch has given
all gradients of a bucket, its sum over the replicas starts and the backward pass goes on. With ZeRO-1 each replica
receives only its share of the sum, updates that share of the parameters, and the shares are gathered, while the next
forward pass already runs: each part of the model waits for its own parameters, just before it uses them. Over slow
links the sum travels in fewer bits (`compressed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from heddle.models.transformer import Transformer
from heddle.parallel.collectives import (
    Handle,
    all_reduce,
    start_all_reduce,
    start_reduce_scatter_in_place,
    start_sharing,
)
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.parameter_layout import place_of
from heddle.parallel.replicas.compressed import EXACT, CompressedSum, GradientCodes
from heddle.parallel.replicas.sharded import ShardedGroup, sums_of
from heddle.parallel.shards import FreeParameters, Kept, Piece, make_piece
from heddle.spec.network.link_codes import AxisCodes

# A bucket of 32 MiB of fp32 is long enough to use a link well and short enough to overlap. But each of d replicas sends
# and receives pieces of 1/d of it, and those have to be long enough, too: 4 MiB each, so that bandwidth and not latency
# decides. From eight replicas on the bucket therefore grows with them (Megatron: max(40 M, 1 M × d) elements).
BUCKET_ELEMENTS = 8 << 20
PIECE_ELEMENTS = 1 << 20

Named = list[tuple[str, nn.Parameter]]


class Bucket:
    """Some parameters whose gradients travel together.

    `sums` are the axes over which gradients must be summed before the replicas': the tensor axis where each rank
    has only a part of them, the two ends of the pipeline where both hold a tied embedding.
    """

    def __init__(self, parameters: Named, sums: list[Axis], mesh: Mesh, zero: int, codes: AxisCodes | None) -> None:
        self.parameters, self.sums, self.data, self.zero = parameters, sums, mesh.data, zero
        sizes = [parameter.numel() for _, parameter in parameters]
        self.share = -(-sum(sizes) // mesh.data.size)  # elements of one replica; the last may end in padding
        first = parameters[0][1]
        self.gradients = first.new_zeros(self.share * mesh.data.size, dtype=torch.float32)
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.views = [
            self.gradients[start : start + size].view_as(parameter)
            for start, size, (_, parameter) in zip(self.starts, sizes, parameters, strict=True)
        ]
        self.stale = set(range(len(parameters)))  # whose gradient in the buffer is of an earlier step
        self.awaited = 0  # gradients of the step that are still to come
        self.handle: Handle | None = None  # of the sum
        self.gathering: Handle | None = None  # of the updated parameters
        self.compressed: CompressedSum | None = None
        if codes is not None:
            self.compressed = CompressedSum(self.gradients, mesh.data, codes, shared=not zero)
        if zero:
            self._flatten_values(first)
        self.pieces = self._make_pieces(mesh, *self._range(), sharded=bool(zero))
        self.kept = self._make_kept(mesh)
        for index, (_, parameter) in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._arrival(index))

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
            low, high = mesh.data.rank * self.share, (mesh.data.rank + 1) * self.share
            sums = self._make_pieces(mesh, low, high, True, self.compressed.sums.residual)
            kept += [Kept(piece, "sum_residual") for piece in sums]
        return kept

    def _range(self) -> tuple[int, int]:
        """What this replica updates of the flat buffer."""
        if not self.zero:
            return 0, len(self.gradients)
        return self.data.rank * self.share, (self.data.rank + 1) * self.share

    def _arrival(self, index: int) -> Callable[[Tensor], None]:
        view = self.views[index]

        def gradient_arrived(parameter: Tensor) -> None:
            assert parameter.grad is not None
            full = parameter.dtype == torch.float32
            if index in self.stale:
                self.stale.remove(index)
                view.copy_(parameter.grad)
                parameter.grad = view if full else None  # autograd adds to a view in place
            elif not full:
                view.add_(parameter.grad)
                parameter.grad = None
            self.awaited -= 1
            if not self.awaited and not self.sums:
                self._start()

        return gradient_arrived

    def expect(self, microbatches: int) -> None:
        """So many will give each gradient once, in whatever order: start the sum as soon as all have."""
        self.awaited = microbatches * sum(place_of(parameter).uses for _, parameter in self.parameters)

    def _start(self) -> None:
        if self.compressed is not None:
            self.handle = self.compressed.start()
            return
        begin = start_reduce_scatter_in_place if self.zero else start_all_reduce
        self.handle = begin(self.gradients, self.data)

    def advance(self) -> None:
        """All gradients are there: begin with the sum if nothing has, and with the second half of one in two."""
        if self.handle is None:
            for index in self.stale:  # what the loss does not depend on
                self.views[index].zero_()
            for axis in self.sums:
                all_reduce(self.gradients, axis)
            self._start()
        assert self.handle is not None
        if self.compressed is not None and not self.zero:
            self.handle.wait()
            self.handle = self.compressed.share()

    def finish(self) -> None:
        """Wait for the sum, and let the masters see it."""
        self.wait_for_weights()  # of what no forward used; the masters change next
        assert self.handle is not None
        result = self.handle.wait()
        self.handle = None
        if self.compressed is not None and not self.zero:
            result = self.compressed.read(result)
        at = 0
        for piece in self.pieces:  # they follow each other without a gap
            piece.master.grad = result[at : at + piece.master.numel()].to(piece.master.device)
            at += piece.master.numel()

    def clear(self) -> None:
        """Make ready for the gradients of another step, which overwrite these."""
        self.stale = set(range(len(self.parameters)))
        for _, parameter in self.parameters:
            parameter.grad = None

    def start_sharing(self) -> None:
        """After an update under ZeRO-1: begin to give every replica the shares of the others."""
        if self.zero and self.data.size > 1:
            self.gathering = start_sharing(self.values, self.data)

    def wait_for_weights(self, *_: object) -> None:
        """Wait until the parameters are whole again, if they are still on their way."""
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None


class Reducer:
    """Makes the gradients of a rank's chunks whole, and knows what the rank updates."""

    def __init__(
        self,
        chunks: dict[int, Named],
        mesh: Mesh,
        levels: Callable[[str], int],
        sharded: dict[int, list[ShardedGroup]] | None = None,
        codes: GradientCodes = EXACT,
    ) -> None:
        """`chunks` names the parameters of each chunk that replicas hold whole, in the order of the model.

        `levels` says how much of each they shard, `sharded` has those of which each holds a share. `codes` are those
        in which sums of gradients are sent.
        """
        self.sharded = sharded or {}
        self.buckets: dict[int, list[Bucket]] = {}
        self.free: list[FreeParameters] = []
        for chunk, parameters in chunks.items():
            self.buckets[chunk] = []
            for (sums, zero, _), named in _alike(parameters, mesh, levels, apart=any(codes)).items():
                if mesh.data.size == 1 and not sums and named[0][1].dtype == torch.float32:
                    self.free.append(FreeParameters(named, mesh))
                    continue
                # backward goes through the model from its end: buckets fill one after the other
                for group in _grouped(named[::-1], bucket_elements(mesh.data.size)):
                    self.buckets[chunk].append(Bucket(group, list(sums), mesh, zero, codes[mesh.ends in sums]))
        self.groups = [group for groups in self.sharded.values() for group in groups]
        self.parts: list[FreeParameters | Bucket | ShardedGroup] = [
            *self.free,
            *(bucket for buckets in self.buckets.values() for bucket in buckets),
            *self.groups,
        ]
        self.pieces = [piece for part in self.parts for piece in part.pieces]
        self.kept = [kept for buckets in self.buckets.values() for bucket in buckets for kept in bucket.kept]
        in_order = [pair for chunk in sorted(chunks) for pair in chunks[chunk]]
        order = {parameter: number for number, (_, parameter) in enumerate(in_order)}
        buckets = [bucket for buckets in self.buckets.values() for bucket in buckets]
        self.first_used_first = sorted(buckets, key=lambda each: min(order[p] for _, p in each.parameters))

    def move(self, moved: Callable[[list[Piece]], list[Piece]]) -> None:
        """Let what is updated live elsewhere."""
        for part in self.parts:
            part.pieces = moved(part.pieces)
        self.pieces = [piece for part in self.parts for piece in part.pieces]

    def expect(self, microbatches: int) -> None:
        """A step of so many microbatches begins."""
        for bucket in self.first_used_first:
            bucket.expect(microbatches)
        for group in self.groups:
            group.expect(microbatches)

    def finish(self) -> None:
        """All gradients of the step are summed and lie at their masters when this returns."""
        for buckets in self.buckets.values():
            for bucket in buckets:
                bucket.advance()
        for part in self.parts:
            part.finish()

    def clear(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.clear()

    def share(self) -> None:
        """After the update: begin to give every replica all parameters again, those first that are used first.

        Sharded ones are gathered when they are used.
        """
        for group in self.groups:
            group.release()
        for bucket in self.first_used_first:
            bucket.start_sharing()

    def wait_for_weights(self) -> None:
        """Wait until every parameter is whole, for whoever looks at them from outside the model."""
        for bucket in self.first_used_first:
            bucket.wait_for_weights()

    def wait_before_use(self, chunks: Mapping[int, Transformer]) -> None:
        """Let every part of the chunks wait for its own parameters before it computes with them.

        Around layers, never in them: what a layer computes may be compiled, or done once more in the backward pass.
        """
        bucket_of = {p: bucket for bucket in self.first_used_first for _, p in bucket.parameters}
        for chunk in chunks.values():
            for module, parameters in parts_in_order(chunk):
                for bucket in dict.fromkeys(bucket_of[p] for p in parameters if p in bucket_of):
                    module.register_forward_pre_hook(bucket.wait_for_weights)


def parts_in_order(chunk: Transformer) -> Iterator[tuple[nn.Module, list[nn.Parameter]]]:
    """The modules that a chunk calls one after the other, and what each needs."""
    if chunk.embed is not None:
        yield chunk.embed, list(chunk.embed.parameters())
    for layer in chunk.layers.values():
        yield layer, list(layer.parameters())
    if chunk.norm is not None and chunk.head is not None:  # the loss uses the head's weight without calling the head
        yield chunk.norm, [*chunk.norm.parameters(), *chunk.head.parameters()]


def _alike(
    parameters: Named, mesh: Mesh, levels: Callable[[str], int], apart: bool
) -> dict[tuple[tuple[Axis, ...], int, bool], Named]:
    """Parameters by the axes over which their gradients need a sum before the replicas', and by what these shard.

    With `apart`, those that all tensor ranks hold alike are by themselves: a code depends on its neighbours, and beside
    parameters that differ by rank they would come out differently on each.
    """
    groups: dict[tuple[tuple[Axis, ...], int, bool], Named] = {}
    for name, parameter in parameters:
        key = sums_of(parameter, mesh), levels(name), apart and place_of(parameter).split
        groups.setdefault(key, []).append((name, parameter))
    return groups


def bucket_elements(replicas: int) -> int:
    """How many gradients travel together at least, while there are more."""
    return max(BUCKET_ELEMENTS, PIECE_ELEMENTS * replicas)


def _grouped(parameters: Named, enough: int) -> list[Named]:
    groups: list[Named] = []
    size = enough
    for named in parameters:
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(named)
        size += named[1].numel()
    return groups
