"""Steps whose update is checked after the fact, so that no stage of a pipeline waits for all others.

An update needs the norm of all stages' gradients: to clip by it, and to leave weights alone where it is not finite. As
long as nothing was clipped in the step before, a stage supposes that nothing is now, updates at once, and begins the
next step. When the norm has come, before the first backward, all stages know whether that was right. If not, each puts
back what it had, updates as it should have, and does the forwards again. So results are those of a run that waits, to
the bit. (arXiv 2401.10241 §4 undoes updates by arithmetic, which does not give back the same bits.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from heddle.runtime.device import Mark
from heddle.trace.lanes import Lane, Phase
from heddle.training.step.in_flight import StepInFlight, Steps, Stop
from heddle.training.step.late_step import LateStep
from heddle.training.step.learning_rate import learning_rate
from heddle.training.step.optimizer import MOMENTS, Optimizer
from heddle.training.step.trainer import Trainer


class Undo:
    """What an optimizer changes, as it was before."""

    def __init__(self) -> None:
        self.copies: list[Tensor] = []

    @torch.no_grad()
    def keep(self, optimizer: Optimizer) -> None:
        """An update is about to be made."""
        now = list(_changed_by(optimizer))
        if not self.copies:
            self.copies = [torch.empty_like(values) for values in now]
        torch._foreach_copy_(self.copies, now)

    @torch.no_grad()
    def restore(self, optimizer: Optimizer) -> None:
        """Go back; what computes gets its copy with the update that follows."""
        torch._foreach_copy_(list(_changed_by(optimizer)), self.copies)


def _changed_by(optimizer: Optimizer) -> Iterator[Tensor]:
    for piece in optimizer.pieces:
        state = optimizer.adam.state[piece.master]
        yield from (piece.master, state["step"], *(state[kind] for kind in MOMENTS))


class Unchecked(NamedTuple):
    """An update that was made before the norm was known."""

    step: LateStep
    rate: float


class CheckedSteps:
    """Steps of a trainer that does not wait for the other stages before it updates."""

    def __init__(self, trainer: Trainer, waiting: Steps) -> None:
        """`waiting` takes the steps that cannot be checked after the fact."""
        self.trainer, self.waiting = trainer, waiting
        self.undo = Undo()
        self.unchecked: Unchecked | None = None
        self.trusting = False  # whether the step before left gradients as they were
        self.undone = 0  # updates, so far

    @property
    def in_flight(self) -> int:
        """One more: its numbers come while the next one is under way."""
        return self.waiting.in_flight + 1

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """One optimizer step. Under fp16 it waits: the scale of the next step depends on what came of this one."""
        trainer = self.trainer
        if trainer.optimizer.scale.enabled:
            return self.waiting.start_step(stop)
        began, rate = Mark(trainer.device), learning_rate(trainer.job.train, trainer.step)
        confirm = self._confirm if self.unchecked is not None else None
        loss = trainer.pipeline.run(trainer.next_works(), trainer.scale, trainer.gradients, confirm)
        with trainer.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            trainer.gradients.finish()
        with trainer.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            squared = trainer.optimizer.squared_norm()
            sums = trainer.sum_over_ranks(loss, squared, bool(stop))
            step = LateStep(sums, began, trainer.optimizer.settle, trainer.rewards)
            self.unchecked = Unchecked(step, rate)
            if self.trusting:
                self.undo.keep(trainer.optimizer)
                trainer.update(rate, torch.zeros_like(squared))
            else:
                trainer.update(rate, step.sums[1])
                self._settled()
        trainer.step += 1
        trainer.position += trainer.job.train.global_batch
        step.end(Mark(trainer.device))
        return step

    def drain(self) -> None:
        """Check what was not checked yet."""
        if self.unchecked is not None:
            self._confirm()

    def _confirm(self) -> bool:
        """Whether the last update was right, as all ranks know; if not, it is by now."""
        assert self.unchecked is not None
        step, rate = self.unchecked
        right = self.trainer.optimizer.leaves_alone(step.read().norm)
        if not right:
            self.trainer.wait_for_weights()
            self.undo.restore(self.trainer.optimizer)
            self.trainer.update(rate, step.sums[1])
            self.undone += 1
        self._settled()
        return right

    def _settled(self) -> None:
        """The last update stands; its gradients are no longer needed."""
        assert self.unchecked is not None
        self.trusting = self.trainer.optimizer.leaves_alone(self.unchecked.step.read().norm)
        self.unchecked = None
        self.trainer.gradients.clear()
