"""What pairs tell beside their loss: the rewards of both answers, and how often the chosen one gains more.

A reward is β times how much likelier the model makes an answer than the reference does (arXiv 2305.18290, Eq. 5). The
last stage notes those of each microbatch; they are averaged as losses are, in the message that sums the losses.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heddle.parallel.collectives import Handle

REWARDS = 3  # of the chosen answers, of the rejected ones, and the share of pairs that are right


class Rewards:
    """Those of a rank's microbatches, then those of all ranks."""

    def __init__(self, pairs: bool) -> None:
        """`pairs`: whether there are any."""
        self.pairs = pairs
        self.noted: list[Tensor] = []
        self.told: Sequence[Tensor] = ()  # of the step whose sums arrived last

    def taken(self, device: torch.device, share: float) -> Sequence[Tensor]:
        """This rank's share of the means, over the microbatches since it was last asked."""
        if not self.pairs:
            return ()
        found = torch.stack(self.noted) if self.noted else torch.zeros(1, REWARDS, dtype=torch.float64, device=device)
        self.noted.clear()
        return (found.mean(0) * share).unbind()

    def summed(self, handle: Handle) -> Handle:
        """The sum over ranks of other numbers, and then of these, which it takes off."""
        return RewardSum(handle, self) if self.pairs else handle


class RewardSum(Handle):
    """A sum over ranks whose last numbers are rewards."""

    def __init__(self, handle: Handle, rewards: Rewards) -> None:
        super().__init__([], handle.result)
        self.handle, self.rewards = handle, rewards

    def wait(self) -> Tensor:
        """All but the rewards."""
        numbers = self.handle.wait()
        self.rewards.told = numbers[-REWARDS:].unbind()
        return numbers[:-REWARDS]
