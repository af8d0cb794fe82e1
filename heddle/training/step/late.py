"""Steps whose updates come late: handed out one after another, without waiting for their gradients."""

from __future__ import annotations

import torch

from heddle.models.transformer import Transformer
from heddle.parallel.collectives import all_reduce
from heddle.parallel.pipeline.late import LatePipeline
from heddle.runtime.device import Mark
from heddle.schedule.late import LateSchedule, Update
from heddle.spec.axes import AXES
from heddle.spec.job import Train
from heddle.trace.lanes import Lane, Phase
from heddle.training.step.correction import chunk_of, corrected
from heddle.training.step.in_flight import StepInFlight, Steps, Stop
from heddle.training.step.late_step import LateStep
from heddle.training.step.learning_rate import learning_rate
from heddle.training.step.optimizer import Optimizer
from heddle.training.step.trainer import Trainer

TIED = "embed.tokens.weight"


class LateSteps:
    """Steps of a trainer whose chunks go on with weights that miss their last few updates."""

    def __init__(self, trainer: Trainer, waiting: Steps) -> None:
        """`waiting` takes the steps that are not late: those of the warm-up, and the first after everything came."""
        self.trainer, self.waiting = trainer, waiting
        plan, train = trainer.plan, trainer.job.train
        assert plan.late is not None
        self.late = LateSchedule(plan.late, plan.pipeline, plan.microbatches(train.global_batch))
        chunks = {number: each for number, each in trainer.parallel.chunks.items() if isinstance(each, Transformer)}
        self.endless = LatePipeline(self.late, chunks, trainer.mesh, trainer.shape, trainer.recorder)
        self.origin = 0  # the step since which updates come late
        # Whether a step has ended since nothing was under way. On a device whoever first runs a kernel waits until the
        # device is idle, its messages included: so the first step of a process waits for its update, and so that going
        # on from a checkpoint makes no difference, the first one after every checkpoint does.
        self.warm = False
        # squared norms of this step's updates
        self.applied = torch.zeros((), dtype=torch.float64, device=trainer.device)

    @property
    def in_flight(self) -> int:
        """As many as a pipeline has ranks: the first is that far ahead of the last."""
        late = self.trainer.step > self.trainer.job.train.delay_warmup
        return self.waiting.in_flight + (self.trainer.plan.pipeline if late else 0)

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """Hand out a step; until the warm-up is over, one that waits for its update."""
        trainer = self.trainer
        train, gradients = trainer.job.train, trainer.gradients
        if trainer.step < train.delay_warmup or not self.warm:
            _correct(trainer.optimizer, train, trainer.step, late=False)
            self.warm = True
            return self.waiting.start_step(stop)
        began = Mark(trainer.device)
        if self.endless.steps == 0:
            self.origin = trainer.step
            gradients.wait_for_weights()  # of the step before, which are copied before a forward would wait for them
            gradients.expect(self.late.microbatches)
        loss = self.endless.run_step(trainer.next_works(), trainer.weight, self._apply)
        applied, self.applied = self.applied, torch.zeros_like(self.applied)
        sums = trainer.sum_over_ranks(loss, applied, bool(stop))
        handed = LateStep(sums, began, trainer.optimizer.settle, trainer.rewards)
        trainer.step += 1
        trainer.position += train.global_batch
        handed.end(Mark(trainer.device))
        return handed

    def _apply(self, update: Update) -> None:
        """The gradients that have come back to this rank, clipped by their own norm: nobody waits for other stages."""
        trainer = self.trainer
        gradients, optimizer, train = trainer.gradients, trainer.optimizer, trainer.job.train
        with trainer.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            gradients.finish()
        with trainer.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            for chunk in trainer.parallel.chunks:
                if chunk not in update.chunks or self.endless.step_of(update, chunk) < 0:
                    self._leave_out(chunk, alone=len(update.chunks) == 1)
            squared = optimizer.squared_norm().double()
            within = [getattr(trainer.mesh, name) for name in AXES if name != "pipeline"]
            for axis in within:
                squared = all_reduce(squared, axis)
            if all(axis.rank == 0 for axis in within):
                self.applied += squared
            step = self.origin + update.step
            step += self.late.delays[update.chunks[0]] if len(update.chunks) == 1 else 0
            _correct(optimizer, train, step, late=True)
            trainer.update(learning_rate(train, min(step, train.steps - 1)), squared)
            gradients.wait_for_weights()  # they are copied when they are next used
            gradients.clear()
            gradients.expect(self.late.microbatches)

    def _leave_out(self, chunk: int, alone: bool) -> None:
        """A chunk to which nothing has come back keeps its weights; of a tied weight the other end's part counts."""
        job = self.trainer.job
        tied = TIED if job.model.tied and not alone else None
        for piece in self.trainer.optimizer.pieces:
            if chunk_of(piece, job) == chunk and piece.name != tied:
                piece.master.grad = None

    def drain(self) -> None:
        """Wait for every gradient that is under way, and apply it; the step after that is not late."""
        self.warm = False
        if self.endless.steps == 0:
            return
        optimizer = self.trainer.optimizer
        self.endless.drain(self._apply)
        self.applied.zero_()
        optimizer.mending.forget()
        self.trainer.gradients.clear()
        for piece in optimizer.pieces:  # a tied weight had its two parts one by one
            optimizer.adam.state[piece.master]["step"].fill_(self.trainer.step)


def _correct(optimizer: Optimizer, train: Train, step: int, late: bool) -> None:
    """Updates that are not late need no correction."""
    for group in optimizer.adam.param_groups:
        group["late"] = group["delay"] if late else 0
        correction = corrected(train, group["late"], step)
        group["share"] = correction.rate if group["share"] else 0.0  # biases that follow the use of experts have none
        group["betas"] = (correction.beta1, train.beta2)
