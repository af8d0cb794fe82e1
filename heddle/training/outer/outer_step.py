"""DiLoCo (Douillard et al. 2023, arXiv 2311.08105): replicas take many local steps, then meet.

Between two meetings each replica takes `local_steps` steps of its own AdamW, and nothing travels between replicas. At a
meeting they average how far they have come from where they all were, and take one step of SGD with Nesterov's momentum
along it; all go on from there. With a momentum of 0 and a rate of 1 that is the mean of their weights.

    Δ = before − mean(weights)      m = μ·m + Δ      weights = before − rate·(Δ + μ·m)

With fragments (Streaming DiLoCo, arXiv 2501.18512) parts of the model meet one after the other, each every
`local_steps`, and a meeting takes a part of the bandwidth. Where they overlap with compute, replicas go on while the
differences travel. What comes of them is applied `overlap_steps` later, and as weights have moved meanwhile, a replica
keeps a share of its own: weights = α·weights + (1 − α)·(before − rate·(Δ + μ·m)).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import ADAM
from heddle.checkpoint.index import read_index
from heddle.checkpoint.storage import Boxes
from heddle.parallel.collectives import Handle, start_sum_numbers
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import ParameterLayout
from heddle.parallel.replicas.compressed import gradient_codes
from heddle.parallel.shards import Kept, Piece, boxes_of
from heddle.runtime.recorder import NoRecorder
from heddle.spec.axes import AXES
from heddle.spec.job import PlannedJob
from heddle.training.outer.outer import Meetings
from heddle.training.outer.parcel import parcels
from heddle.training.step.optimizer import Optimizer


class OuterStep(Meetings):
    """What replicas agree on at meetings, on one rank: the weights before, the momentum, and who is to be told."""

    def __init__(
        self, job: PlannedJob, mesh: Mesh, optimizer: Optimizer, recorder: NoRecorder, device: torch.device
    ) -> None:
        super().__init__(recorder, device)
        plan, train = job.plan, job.train
        self.optimizer, self.pieces, self.data = optimizer, optimizer.pieces, mesh.data
        pieces = self.pieces
        self.every, self.last, self.overlap = plan.local_steps, train.steps, plan.overlap_steps
        self.rate, self.momentum, self.mixing = train.outer_learning_rate, train.outer_momentum, train.outer_mixing
        self.streaming = plan.fragments > 1 or plan.overlap_steps > 0  # replicas are never all alike then
        codes = gradient_codes(plan, mesh.data, mesh)
        self.fragments = [
            list(parcels([piece for piece in pieces if fragment_of(piece.name, plan.fragments) == number], mesh, codes))
            for number in range(plan.fragments)
        ]
        self.parcels = [parcel for fragment in self.fragments for parcel in fragment]
        self.step = 0
        # What each replica counts for itself, as checkpoints hold it: updates, and under fp16 the loss scale and the
        # steps since it last changed. One rank of each replica writes it.
        counts = torch.zeros(3, device=pieces[0].master.device if pieces else None)
        self.counts = Piece(
            name="replica",
            place=ParameterLayout(counts.shape, (0,)),
            local=counts.shape,
            start=0,
            master=counts,
            target=None,
            decay=False,
            counted=all(getattr(mesh, name).rank == 0 for name in AXES if name != "data"),
        )
        self.numbers: Handle | None = None  # of what replicas tell each other beside an overlapped meeting

    def _begins(self, number: int, step: int) -> bool:
        """Whether a fragment leaves after so many steps: each in its turn, the last one when all steps are done."""
        return step % self.every == (number + 1) * self.every // len(self.fragments) % self.every

    def _applied(self, number: int, step: int) -> bool:
        return self.overlap > 0 and step > self.overlap and self._begins(number, step - self.overlap)

    def due(self, step: int) -> bool:
        """Whether replicas meet after so many steps, or something comes of a meeting; a run's last one is a meeting."""
        numbers = range(len(self.fragments))
        return step == self.last or any(
            self._begins(n, step) or self._applied(n, step) or self._halfway(n, step) for n in numbers
        )

    def _halfway(self, number: int, step: int) -> bool:
        """When the second half of a sum in codes begins."""
        half = self.overlap // 2
        return half > 0 and step > half and self._begins(number, step - half)

    @torch.no_grad()
    def meet(self) -> None:
        """Average what was learned since the last meeting, and go on from the same weights; or begin to, or end it."""
        step = self.step
        for number, fragment in enumerate(self.fragments):
            late = self._under_way(number, step) or self._applied(number, step)
            if late and (self._applied(number, step) or step == self.last):
                self._apply(number, self.mixing)
            elif late and self._halfway(number, step):
                for parcel in fragment:
                    parcel.advance()
        for number, fragment in enumerate(self.fragments):
            if step == self.last or self._begins(number, step):
                for parcel in fragment:
                    parcel.send()
                if step == self.last or not self.overlap:
                    self._apply(number)

    def _apply(self, number: int, mixing: float = 0.0) -> None:
        for parcel in self.fragments[number]:
            parcel.apply(self.rate, self.momentum, mixing)
            _fill_targets(parcel.pieces)

    def _under_way(self, number: int, step: int) -> bool:
        """Whether a fragment left less than so many steps ago, and nothing has come of it yet."""
        first = max(1, step - self.overlap + 1)
        return any(self._begins(number, before) for before in range(first, step))

    def agree(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """The loss to report, and how many were asked to stop since replicas last told each other.

        At a meeting the loss is the mean over replicas; beside an overlapped one it is this replica's, and who was
        asked is known when that is applied.
        """
        numbers = range(len(self.fragments))
        begins, ends = any(self._begins(n, self.step) for n in numbers), self.step == self.last
        stops = torch.zeros_like(self.asked)
        if self.numbers is not None and (ends or any(self._applied(n, self.step) for n in numbers)):
            stops, self.numbers = self.numbers.wait()[1], None
        if not begins and not ends:
            return loss, stops
        told = start_sum_numbers(torch.stack([loss / self.data.size, self.asked]), self.data)
        self.asked.zero_()
        if self.overlap and not ends:
            self.numbers = told
            return loss, stops
        mean, now = told.wait().unbind()
        return mean, stops + now

    @torch.no_grad()
    def begin(self) -> None:
        """All replicas have the same weights now: that is where the next steps start from."""
        for parcel in self.parcels:
            parcel.begin()

    def saved(self, state: dict[str, Boxes]) -> dict[str, Boxes]:
        """The first replica's are everybody's; where replicas are not alike, with the weights they agreed on last.

        What is under way arrives, without being applied: a checkpoint holds it then.
        """
        for parcel in self.parcels:
            parcel.arrive()
        if self.data.rank:
            return {}
        return state | (dict(pair for parcel in self.parcels for pair in parcel.agreed()) if self.streaming else {})

    @torch.no_grad()
    def resumed(self, checkpoint: Path) -> None:
        """Own weights and counts were read, if the checkpoint has some."""
        stored, optimizer = read_index(checkpoint).keys(), self.optimizer
        updates, scale, quiet = self.counts.master.tolist()
        if scale:  # else another kind of run wrote it
            optimizer.updates, optimizer.scale.value, optimizer.scale.quiet = int(updates), scale, int(quiet)
            for piece in self.pieces:
                optimizer.adam.state[piece.master]["step"].fill_(updates)
        if not self.streaming:
            return
        for parcel in self.parcels:
            for piece, before in parcel.beside(parcel.before):
                read = torch.zeros_like(before)
                if f"{piece.name}:own_weights" in stored:
                    for _, part in boxes_of(piece, read):  # not rows that only pad the vocabulary
                        part.fill_(1)
                piece.master.copy_(torch.where(read > 0, piece.master, before))
        _fill_targets(self.pieces)

    @contextmanager
    def shared_weights(self) -> Iterator[None]:
        """The weights that all replicas agreed on last, in place of each one's own."""
        if not self.streaming:
            yield
            return
        with torch.no_grad():
            own = [piece.master.clone() for piece in self.pieces]
            for parcel in self.parcels:
                for piece, before in parcel.beside(parcel.before):
                    piece.master.copy_(before)
            _fill_targets(self.pieces)
        yield
        with torch.no_grad():
            for piece, values in zip(self.pieces, own, strict=True):
                piece.master.copy_(values)
            _fill_targets(self.pieces)

    def kept(self) -> list[Kept]:
        """What goes on with a run that is resumed: the momentum, what codes could not say, each replica's moments and
        counts.

        Where meetings stream, each replica's weights, too, and what is under way.
        """
        optimizer, scale = self.optimizer, self.optimizer.scale
        self.counts.master.copy_(torch.tensor([optimizer.updates, scale.value, scale.quiet]))
        kept = [each for parcel in self.parcels for each in parcel.kept(self.streaming)]
        kept.append(Kept(self.counts, "counts", apart=True))
        for piece in self.pieces:
            state = optimizer.adam.state[piece.master]
            kept += [Kept(replace(piece, master=state[kind], target=None), kind, apart=True) for kind in ADAM]
        return kept


def fragment_of(name: str, fragments: int) -> int:
    """Which fragment a parameter is in: layers go in turn, so that each has some of the whole depth.

    The embedding goes with the first, at both ends of a pipeline; what follows the layers with the last.
    """
    first, _, rest = name.partition(".")
    unit = rest.partition(".")[0] if first == "layers" else first
    if unit.isdecimal():
        return int(unit) % fragments
    return 0 if unit == "embed" else fragments - 1


def _fill_targets(pieces: list[Piece]) -> None:
    for piece in pieces:
        if piece.target is not None:
            piece.target.copy_(piece.master)
