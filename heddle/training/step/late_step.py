"""A step that goes on while its numbers are still on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heddle.parallel.collectives import Handle
from heddle.runtime.device import Mark
from heddle.training.step.in_flight import StepInFlight, StepResult
from heddle.training.step.rewards import Rewards


class LateStep(StepInFlight):
    """A step whose numbers are still being added up over the ranks, some of which are not there yet."""

    def __init__(self, handle: Handle, began: Mark, settle: Callable[[float], None], rewards: Rewards) -> None:
        self.handle, self.began, self.settle, self.rewards = handle, began, settle, rewards
        self.told: Sequence[Tensor] = ()  # rewards of pairs, of all ranks
        self.ended = began
        self.result: StepResult | None = None
        self.arrived: Tensor | None = None

    @property
    def sums(self) -> Tensor:
        """Loss, square of the norm and requests to stop, of all ranks."""
        if self.arrived is None:
            self.arrived = self.handle.wait()
            self.told = self.rewards.told
        return self.arrived

    def read(self) -> StepResult:
        """What it tells, once all ranks have come so far."""
        if self.result is None:
            loss, squared, stops = self.sums.unbind()
            # the root as the optimizer takes it: others round it differently; by kernels that have all run before
            loss, norm, stops, *rewards = torch.stack([loss, squared.sqrt(), stops, *self.told]).tolist()
            self.settle(norm)
            self.result = StepResult(loss, norm, stops > 0, tuple(rewards))
        return self.result

    def end(self, ended: Mark) -> None:
        """All of it was handed out."""
        self.ended = ended

    @property
    def seconds(self) -> float:
        """How long it took this rank."""
        self.ended.wait()
        return self.ended.since(self.began)
