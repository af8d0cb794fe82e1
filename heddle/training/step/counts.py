"""How many losses the user's own loss functions have summed: what their sums are divided by is known after the fact.

The backward pass has divided by as many as there are targets. Once the numbers of all ranks are summed, loss, gradients
and their norm are divided by what was counted over that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from heddle.models.own.chunk import OwnChunk
from heddle.parallel.collectives import Handle
from heddle.training.step.optimizer import Optimizer


class Counts:
    """Of a rank's chunks; only the last one of a model counts."""

    def __init__(self, chunks: Iterable[object]) -> None:
        self.chunks = [chunk for chunk in chunks if isinstance(chunk, OwnChunk)]
        self.given: Tensor | None = None

    def put(self, counted: Tensor) -> None:
        """What is taken next: the mean over more than one batch."""
        self.given = counted

    def taken(self, device: torch.device) -> Tensor:
        """The mean over the microbatches since it was last asked: counted losses over expected ones."""
        if self.given is not None:
            given, self.given = self.given, None
            return given
        found = [count for chunk in self.chunks for count in chunk.counted]
        for chunk in self.chunks:
            chunk.counted.clear()
        return torch.stack(found).mean() if found else torch.zeros((), dtype=torch.float64, device=device)


class CountedSum(Handle):
    """The sum over ranks of a loss, then perhaps of a squared norm and other numbers, last of what was counted."""

    def __init__(self, handle: Handle, optimizer: Optimizer) -> None:
        super().__init__([], handle.result)
        self.handle, self.optimizer = handle, optimizer

    def wait(self) -> Tensor:
        """All but the last, over what was counted."""
        *numbers, counted = self.handle.wait().unbind()
        if len(numbers) > 1:  # a step, whose gradients are yet to be divided
            self.optimizer.divisor = counted
            numbers[1] = numbers[1] / counted**2
        return torch.stack([numbers[0] / counted, *numbers[1:]])
