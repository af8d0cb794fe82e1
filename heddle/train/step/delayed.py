"""Steps whose updates come late: handed out one after another, without waiting for their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from heddle.checkpoint.checkpoint import Saver
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.delayed import DelayedPipeline
from heddle.parallel.shards import Piece
from heddle.runtime.device import Mark
from heddle.runtime.recorder import NoRecorder, Recorder
from heddle.schedule.delayed import DelayedSchedule, Update
from heddle.spec.job import Job, PlannedJob, Train
from heddle.trace.lanes import Lane, Phase
from heddle.train.step.correction import corrected
from heddle.train.step.late_step import LateStep
from heddle.train.step.learning_rate import learning_rate
from heddle.train.step.optimizer import Optimizer
from heddle.train.step.trainer import Kind, StepInFlight, Stop, Tokens, Trainer

TIED = "embed.tokens.weight"


class DelayedTrainer(Trainer):
    """A trainer whose chunks go on with weights that miss their last few updates."""

    def __init__(
        self, job: Job, tokens: Tokens, mesh: Mesh | None = None, recorder: Recorder | NoRecorder | None = None
    ) -> None:
        planned = job.planned
        rule = planned.plan.delayed
        assert rule is not None
        count = planned.plan.microbatches(planned.train.global_batch)
        self.delayed = DelayedSchedule(rule, planned.plan.pipeline, count)
        super().__init__(job, tokens, mesh, recorder)
        self.endless = DelayedPipeline(self.delayed, self.parallel.chunks, self.mesh, self.shape, self.recorder)
        self.origin = 0  # the step since which updates come late
        # Whether a step has ended since nothing was under way. On a device whoever first runs a kernel waits until the
        # device is idle, its messages included: so the first step of a process waits for its update, and so that going
        # on from a checkpoint makes no difference, the first one after every checkpoint does.
        self.warm = False
        self.applied = torch.zeros((), dtype=torch.float64, device=self.device)  # squared norms of this step's updates

    def made_optimizer(self, kind: Callable[..., Kind]) -> Kind:
        """One that knows by how much each chunk is behind."""
        return kind(
            self.parallel.gradients.pieces,
            self.job.train,
            lambda piece: self.delayed.delays[_chunk_of(piece, self.job)],
        )

    @property
    def in_flight(self) -> int:
        """As many as a pipeline has ranks: the first is that far ahead of the last."""
        return super().in_flight + (self.plan.pipeline if self.step > self.job.train.delay_warmup else 0)

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """Hand out a step; until the warm-up is over, one that waits for its update."""
        late = self.step >= self.job.train.delay_warmup and self.warm
        if not late:
            _correct(self.optimizer, self.job.train, self.step, late=False)
            self.warm = True
            return super().start_step(stop)
        began = Mark(self.device)
        gradients = self.parallel.gradients
        if self.endless.steps == 0:
            self.origin = self.step
            gradients.wait_for_weights()  # of the step before, which are copied before a forward would wait for them
            gradients.expect(self.delayed.microbatches)
        following = self.position + self.job.train.global_batch
        works = self._works(self.batches.take(self.position, following), self.position, training=True)
        loss = self.endless.run_step(works, 1 / self.mesh.data.size, self._apply)
        applied, self.applied = self.applied, torch.zeros_like(self.applied)
        handed = LateStep(self._sum_over_ranks(loss, applied, bool(stop)), began, self.optimizer.settle)
        self.step += 1
        self.position = following
        handed.end(Mark(self.device))
        return handed

    def _apply(self, update: Update) -> None:
        """The gradients that have come back to this rank, clipped by their own norm: nobody waits for other stages."""
        gradients = self.parallel.gradients
        with self.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            gradients.finish()
        with self.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            for chunk in self.parallel.chunks:
                if chunk not in update.chunks or self.endless.step_of(update, chunk) < 0:
                    self._leave_out(chunk, shared=len(update.chunks) == 1)
            squared = self.optimizer.squared_norm().double()
            for axis in (self.mesh.tensor, self.mesh.data):
                squared = all_reduce(squared, axis)
            if self.mesh.tensor.rank == self.mesh.data.rank == 0:
                self.applied += squared
            if self.saver is not None:
                self.saver.copied()
            step = self.origin + update.step
            step += self.delayed.delays[update.chunks[0]] if len(update.chunks) == 1 else 0
            _correct(self.optimizer, self.job.train, step, late=True)
            self.optimizer.step(learning_rate(self.job.train, min(step, self.job.train.steps - 1)), squared)
            gradients.share()
            gradients.wait_for_weights()  # they are copied when they are next used
            gradients.clear()
            gradients.expect(self.delayed.microbatches)

    def _leave_out(self, chunk: int, shared: bool) -> None:
        """A chunk to which nothing has come back keeps its weights; of a tied weight the other end's part counts."""
        for piece in self.optimizer.pieces:
            if _chunk_of(piece, self.job) == chunk and (shared or piece.name != TIED):
                piece.master.grad = None

    def drain(self) -> None:
        """Wait for every gradient that is under way, and apply it; the step after that is not late."""
        self.warm = False
        if self.endless.steps == 0:
            return
        self.endless.drain(self._apply)
        self.applied.zero_()
        self.optimizer.mending.forget()
        self.parallel.gradients.clear()
        for piece in self.optimizer.pieces:  # a tied weight had its two parts one by one
            self.optimizer.adam.state[piece.master]["step"].fill_(self.step)

    def evaluate(self, tokens: Tokens, tick: Callable[[], None] = lambda: None) -> float | None:
        """With all updates applied."""
        self.drain()
        return super().evaluate(tokens, tick)

    def save(self, saver: Saver) -> None:
        """Nothing is under way in a checkpoint: any plan takes it up."""
        self.drain()
        super().save(saver)


def _chunk_of(piece: Piece, job: PlannedJob) -> int:
    """The chunk that a parameter is in; a tied weight is in the first."""
    kind, _, rest = piece.name.partition(".")
    if kind == "embed":
        return 0
    if kind != "layers":
        return job.plan.chunks - 1
    layer = int(rest.partition(".")[0])
    return next(chunk for chunk in range(job.plan.chunks) if layer in job.plan.layers_of(chunk, job.model.layers))


def _correct(optimizer: Optimizer, train: Train, step: int, late: bool) -> None:
    """Updates that are not late need no correction."""
    for group in optimizer.adam.param_groups:
        group["late"] = group["delay"] if late else 0
        correction = corrected(train, group["late"], step)
        group["share"], group["betas"] = correction.rate, (correction.beta1, train.beta2)
