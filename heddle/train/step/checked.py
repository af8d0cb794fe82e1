"""Steps whose update is checked after the fact, so that no stage of a pipeline waits for all others.

An update needs the norm of all stages' gradients: to clip by it, and to leave weights alone where it is not finite. As
long as nothing was clipped in the step before, a stage supposes that nothing is now, updates at once, and begins the
next step. When the norm has come, before the first backward, all stages know whether that was right. If not, each puts
back what it had, updates as it should have, and does the forwards again. So results are those of a run that waits, to
the bit. (arXiv 2401.10241 §4 undoes updates by arithmetic, which does not give back the same bits.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import Saver
from heddle.runtime.device import Mark
from heddle.trace.lanes import Lane, Phase
from heddle.train.step.late_step import LateStep
from heddle.train.step.learning_rate import learning_rate
from heddle.train.step.optimizer import MOMENTS, Optimizer
from heddle.train.step.trainer import StepInFlight, Stop, Tokens, Trainer


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


class CheckedTrainer(Trainer):
    """A trainer that does not wait for the other stages before it updates."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.undo = Undo()
        self.unchecked: Unchecked | None = None
        self.trusting = False  # whether the step before left gradients as they were
        self.undone = 0  # updates, so far

    @property
    def in_flight(self) -> int:
        """One more: its numbers come while the next one is under way."""
        return super().in_flight + 1

    def start_step(self, stop: Stop = False) -> StepInFlight:
        """One optimizer step. Under fp16 it waits: the scale of the next step depends on what came of this one."""
        if self.optimizer.scale.enabled:
            return super().start_step(stop)
        began = Mark(self.device)
        rate = learning_rate(self.job.train, self.step)
        following = self.position + self.job.train.global_batch
        works = self._works(self.batches.take(self.position, following), self.position, training=True)
        gradients = self.parallel.gradients
        confirm = self._confirm if self.unchecked is not None else None
        loss = self.pipeline.run(works, 1 / self.mesh.data.size, gradients, confirm)
        with self.recorder.span(Lane.OPTIMIZER, Phase.GRADIENTS):
            gradients.finish()
        with self.recorder.span(Lane.OPTIMIZER, Phase.UPDATE):
            squared = self.optimizer.squared_norm()
            numbers = self._sum_over_ranks(loss, squared, bool(stop))
            step = LateStep(numbers, began, self.optimizer.settle)
            self.unchecked = Unchecked(step, rate)
            if self.trusting:
                self.undo.keep(self.optimizer)
                self._update(rate, torch.zeros_like(squared))
            else:
                self._update(rate, step.sums[1])
                self._settled()
        self.step += 1
        self.position = following
        step.end(Mark(self.device))
        return step

    def drain(self) -> None:
        """Check what was not checked yet."""
        if self.unchecked is not None:
            self._confirm()

    def evaluate(self, tokens: Tokens, tick: Callable[[], None] = lambda: None) -> float | None:
        """With weights that are right."""
        self.drain()
        return super().evaluate(tokens, tick)

    def save(self, saver: Saver) -> None:
        """Begin to write a checkpoint of the present step, when that stands."""
        self.drain()
        super().save(saver)

    def _confirm(self) -> bool:
        """Whether the last update was right, as all ranks know; if not, it is by now."""
        assert self.unchecked is not None
        step, rate = self.unchecked
        right = self.optimizer.leaves_alone(step.read().norm)
        if not right:
            self.wait_for_weights()
            self.undo.restore(self.optimizer)
            self._update(rate, step.sums[1])
            self.undone += 1
        self._settled()
        return right

    def _update(self, rate: float, squared_norm: Tensor) -> None:
        if self.saver is not None:
            self.saver.copied()  # from here on the state changes
        self.optimizer.step(rate, squared_norm)
        self.parallel.gradients.share()

    def _settled(self) -> None:
        """The last update stands; its gradients are no longer needed."""
        assert self.unchecked is not None
        self.trusting = self.optimizer.leaves_alone(self.unchecked.step.read().norm)
        self.unchecked = None
        self.parallel.gradients.clear()
