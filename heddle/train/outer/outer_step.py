"""DiLoCo (Douillard et al. 2023, arXiv 2311.08105): replicas learn by themselves for many steps, then meet.

Between two meetings each replica takes `local_steps` steps of its own AdamW, and nothing travels between replicas. At a
meeting they average how far they have come from where they all were, and take one step of SGD with Nesterov's momentum
along it; all go on from there. With a momentum of 0 and a rate of 1 that is the mean of their weights.

    Δ = before − mean(weights)      m = μ·m + Δ      weights = before − rate·(Δ + μ·m)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import ADAM
from heddle.parallel.codecs import CODECS
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.replicas.compressed import CompressedSum
from heddle.parallel.replicas.reducer import bucket_elements
from heddle.parallel.shards import Kept, Piece
from heddle.spec.job import PlannedJob
from heddle.train.step.optimizer import Optimizer


class OuterStep:
    """What replicas agree on at a meeting, on one rank: the weights before, the momentum, and who is to be told."""

    def __init__(self, pieces: list[Piece], mesh: Mesh, job: PlannedJob) -> None:
        self.pieces, self.data = pieces, mesh.data
        self.every, self.last = job.plan.local_steps, job.train.steps
        self.rate, self.momentum = job.train.outer_learning_rate, job.train.outer_momentum
        self.parcels = [Parcel(group, mesh.data, job.plan.compress_gradients) for group in _grouped(pieces, mesh)]

    def due(self, step: int) -> bool:
        """Whether replicas meet after so many steps; a run's last one is a meeting."""
        return step % self.every == 0 or step == self.last

    @torch.no_grad()
    def meet(self) -> None:
        """Average what was learned since the last meeting, and go on from the same weights."""
        for parcel in self.parcels:
            parcel.meet(self.rate, self.momentum)
        for piece in self.pieces:
            if piece.target is not None:
                piece.target.copy_(piece.master)

    @torch.no_grad()
    def begin(self) -> None:
        """All replicas have the same weights now: that is where the next steps start from."""
        for parcel in self.parcels:
            parcel.begin()

    def kept(self, optimizer: Optimizer) -> list[Kept]:
        """What goes on with a run that is resumed: the momentum, what codes could not say, each replica's moments."""
        kept = [each for parcel in self.parcels for each in parcel.kept()]
        for piece in self.pieces:
            state = optimizer.adam.state[piece.master]
            kept += [Kept(replace(piece, master=state[kind], target=None), kind, apart=True) for kind in ADAM]
        return kept


class Parcel:
    """Some pieces whose differences travel together, flat."""

    def __init__(self, pieces: list[Piece], data: Axis, code: str) -> None:
        self.pieces, self.data = pieces, data
        count = sum(piece.master.numel() for piece in pieces)
        share = -(-count // data.size)
        like = pieces[0].master
        self.difference = like.new_zeros(share * data.size)
        self.before, self.velocity = like.new_zeros(count), like.new_zeros(count)
        self.compressed = CompressedSum(self.difference, data, CODECS[code], shared=True) if code != "none" else None
        self.begin()

    def begin(self) -> None:
        for piece, before in self._beside(self.before):
            before.copy_(piece.master)

    def meet(self, rate: float, momentum: float) -> None:
        count = len(self.before)
        for (piece, before), (_, difference) in zip(
            self._beside(self.before), self._beside(self.difference), strict=True
        ):
            torch.sub(before, piece.master, out=difference)
        self._sum()
        mean = self.difference[:count].div_(self.data.size)
        self.velocity.mul_(momentum).add_(mean)
        self.before.sub_(mean.add_(self.velocity, alpha=momentum), alpha=rate)
        for piece, before in self._beside(self.before):
            piece.master.copy_(before)

    def _sum(self) -> None:
        if self.compressed is None:
            all_reduce(self.difference, self.data)
            return
        self.compressed.start().wait()
        self.compressed.read(self.compressed.share().wait())

    def kept(self) -> Iterator[Kept]:
        first = self.data.rank == 0  # what all replicas have, the first one saves
        for piece, velocity in self._beside(self.velocity):
            yield Kept(replace(piece, master=velocity, target=None, counted=piece.counted and first), "outer_momentum")
        if self.compressed is None:
            return
        for piece, residual in self._beside(self.compressed.parts.residual.view(-1)):
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

    def _beside(self, flat: Tensor) -> Iterator[tuple[Piece, Tensor]]:
        """Each piece with its part of a flat buffer."""
        at = 0
        for piece in self.pieces:
            yield piece, flat[at : at + piece.master.numel()]
            at += piece.master.numel()


def _grouped(pieces: list[Piece], mesh: Mesh) -> Iterator[list[Piece]]:
    """Pieces that travel together: no more than a bucket's worth, and apart what several ranks hold alike.

    A code depends on its neighbours; beside pieces that differ by rank, the same ones would come out differently.
    """
    groups: dict[tuple[bool, bool], list[Piece]] = {}
    for piece in pieces:
        groups.setdefault((piece.place.split, piece.place.tied), []).append(piece)
    enough = bucket_elements(mesh.data.size)
    for group in groups.values():
        some: list[Piece] = []
        for piece in group:
            some.append(piece)
            if sum(each.master.numel() for each in some) >= enough:
                yield some
                some = []
        if some:
            yield some
