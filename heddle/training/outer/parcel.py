"""What replicas send each other at a meeting: some weights that travel together, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from heddle.checkpoint.storage import Boxes
from heddle.parallel.collectives import Handle, start_all_reduce
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.replicas.compressed import CompressedSum, GradientCodes
from heddle.parallel.replicas.reducer import bucket_elements
from heddle.parallel.shards import Kept, Piece, boxes_of
from heddle.spec.network.link_codes import AxisCodes


class Parcel:
    """Some pieces whose differences travel together, flat."""

    def __init__(self, pieces: list[Piece], data: Axis, codes: AxisCodes | None) -> None:
        self.pieces, self.data = pieces, data
        count = sum(piece.master.numel() for piece in pieces)
        share = -(-count // data.size)
        like = pieces[0].master
        self.difference = like.new_zeros(share * data.size)
        self.before, self.velocity = like.new_zeros(count), like.new_zeros(count)
        self.compressed = CompressedSum(self.difference, data, codes, shared=True) if codes is not None else None
        self.handle: Handle | None = None  # of what is under way: a sum, or one of the two halves of it
        self.halves = 0  # of it that are done
        self.sent = False  # by this process; what was under way in a run that is resumed lies there already
        self.begin()

    def begin(self) -> None:
        """All replicas have these weights: that is where the next steps start from."""
        for piece, before in self.beside(self.before):
            before.copy_(piece.master)

    def send(self) -> None:
        """Begin to sum up how far replicas have come."""
        for (piece, before), (_, difference) in zip(
            self.beside(self.before), self.beside(self.difference), strict=True
        ):
            torch.sub(before, piece.master, out=difference)
        self.halves, self.sent = 0, True
        self.handle = (
            start_all_reduce(self.difference, self.data) if self.compressed is None else self.compressed.start()
        )

    def advance(self) -> None:
        """The second half of a sum in codes, once the first is done."""
        if self.compressed is not None and self.handle is not None and not self.halves:
            self.handle.wait()
            self.handle, self.halves = self.compressed.share(), 1

    def arrive(self) -> None:
        """Wait for the sum."""
        self.advance()
        if self.handle is not None:
            found = self.handle.wait()
            if self.compressed is not None:
                self.compressed.read(found)
            self.handle = None

    def apply(self, rate: float, momentum: float, mixing: float = 0.0) -> None:
        """Step along the mean difference; a replica keeps a share of its own weights where these have gone on since."""
        self.arrive()
        if not self.sent and not bool(self.difference.any()):  # taken up from a run that had nothing under way
            return
        self.sent = False
        mean = self.difference[: len(self.before)].div_(self.data.size)
        self.velocity.mul_(momentum).add_(mean)
        self.before.sub_(mean.add_(self.velocity, alpha=momentum), alpha=rate)
        self.difference.zero_()
        for piece, before in self.beside(self.before):
            if mixing:
                piece.master.lerp_(before, 1 - mixing)
            else:
                piece.master.copy_(before)

    def agreed(self) -> Iterator[tuple[str, Boxes]]:
        """The weights that all replicas agreed on last, as boxes of global tensors."""
        for piece, before in self.beside(self.before):
            if piece.counted:
                yield piece.name, Boxes(tuple(piece.place.shape), list(boxes_of(piece, before)))

    def kept(self, streaming: bool) -> Iterator[Kept]:
        """What goes on with a run that is resumed; `streaming`: replicas are not alike, or something is under way."""
        first = self.data.rank == 0  # what all replicas have, the first one saves
        shared = [("outer_momentum", self.velocity), *([("outer_sum", self.difference)] if streaming else [])]
        for kind, flat in shared:
            for piece, values in self.beside(flat):
                yield Kept(replace(piece, master=values, target=None, counted=piece.counted and first), kind)
        if streaming:
            yield from (Kept(replace(piece, target=None), "own_weights", apart=True) for piece in self.pieces)
        if self.compressed is None:
            return
        for piece, residual in self.beside(self.compressed.parts.residual.view(-1)):
            yield Kept(replace(piece, master=residual, target=None), "outer_residual", apart=True, summed=True)
        assert self.compressed.sums is not None
        sums, low = self.compressed.sums.residual, self.data.rank * len(self.compressed.sums.residual)
        begin = 0
        for piece in self.pieces:
            start, stop = max(low, begin), min(low + len(sums), begin + piece.master.numel())
            if start < stop:
                part = replace(
                    piece, start=piece.start + start - begin, master=sums[start - low : stop - low], target=None
                )
                yield Kept(part, "outer_sum_residual")
            begin += piece.master.numel()

    def beside(self, flat: Tensor) -> Iterator[tuple[Piece, Tensor]]:
        """Each piece with its part of a flat buffer."""
        return beside(self.pieces, flat)


def beside(pieces: Iterable[Piece], flat: Tensor) -> Iterator[tuple[Piece, Tensor]]:
    """Each of these pieces with its part of a flat buffer."""
    at = 0
    for piece in pieces:
        yield piece, flat[at : at + piece.master.numel()]
        at += piece.master.numel()


def parcels(pieces: list[Piece], mesh: Mesh, codes: GradientCodes) -> Iterator[Parcel]:
    """Pieces that travel together: no more than a bucket's worth, and apart what several ranks hold alike.

    A code depends on its neighbors; beside pieces that differ by rank, the same ones would come out differently.
    """
    groups: dict[tuple[frozenset[str], bool], list[Piece]] = {}
    for piece in pieces:
        groups.setdefault((piece.place.split, piece.place.tied), []).append(piece)
    enough = bucket_elements(mesh.data.size)
    for (_, tied), group in groups.items():
        some: list[Piece] = []
        for piece in group:
            some.append(piece)
            if sum(each.master.numel() for each in some) >= enough:
                yield Parcel(some, mesh.data, codes[tied])
                some = []
        if some:
            yield Parcel(some, mesh.data, codes[tied])
